# Tests of the C library: under sanitizers, by fuzzers, and for another processor. The Makefile includes this file.
#   make native-test   what tests/test_native.py runs too: about half a minute
#   make sanitize      more of it, all sanitizers, and Python tests of the stores with a sanitized library: some minutes
#   make fuzz          libFuzzer on every decoder, FUZZ_SECONDS each; needs clang
#   make qemu          the C tests for aarch64; needs qemu-user and ziglang

NATIVE ?= src/sb3_extra_buffers/native
NATIVE_TESTS := tests/native
NATIVE_BUILD ?= build/native
RUN ?= .venv/bin/
CLANG ?= clang
QEMU ?= $(firstword $(shell command -v qemu-aarch64 qemu-aarch64-static))
ZIG ?= $(RUN)python -m ziglang
FUZZ_SECONDS ?= 30
SANITIZED_SECONDS ?= 300

FUZZ_TARGETS := fuzz_delta fuzz_formats fuzz_runs fuzz_segment fuzz_store
NATIVE_HEADERS := $(wildcard $(NATIVE)/*.h $(NATIVE_TESTS)/*.h $(NATIVE_TESTS)/fuzz/*.h)
# -g1: lines in the reports of sanitizers, and a tenth less to compile than with -g.
NATIVE_FLAGS := -std=c11 -g1 -Wall -Wextra -Werror -pthread -I$(NATIVE) -I$(NATIVE_TESTS) -I$(NATIVE_TESTS)/fuzz
# Small chunks, and threads for small batches: so a small test gets everywhere.
NATIVE_SMALL := -DCHUNK_BYTES=3000 -DLARGE_BATCH_BYTES=2000 -DPART_BYTES=500
SANITIZERS ?= -fsanitize=address,undefined -fno-sanitize-recover=all

.PHONY: native-test sanitize sanitize-c sanitize-python fuzz fuzz-corpus qemu

native-test:

objects_of = $(patsubst %.c,%.o,$(notdir $(wildcard $(1)/*.c)))
# The files that are different on the plain-C path; the others of such a build are those of the build without it.
PLAIN_OBJECTS := $(patsubst %.c,%.o,$(notdir $(shell grep -l '"bytes.h"' $(NATIVE)/*.c)))

# $(1): name of a build, $(2): compiler, $(3): flags, $(4): flag of libFuzzer, $(5): the build without the plain-C path.
# Gives tests, fuzz_... and the objects of each.
define NATIVE_VARIANT
$(1)_LIBRARY := $(if $(5),$(addprefix $(NATIVE_BUILD)/$(1)/,$(PLAIN_OBJECTS)) \
    $(addprefix $(NATIVE_BUILD)/$(5)/,$(filter-out $(PLAIN_OBJECTS),$(call objects_of,$(NATIVE)))),\
    $(addprefix $(NATIVE_BUILD)/$(1)/,$(call objects_of,$(NATIVE))))
$(1)_MODEL := $(addprefix $(NATIVE_BUILD)/$(1)/,model.o reading.o moving.o saved.o loaded.o)
$(NATIVE_BUILD)/$(1)/%.o: $(NATIVE)/%.c $(NATIVE_HEADERS) native.mk
	@mkdir -p $$(@D)
	$(2) $(NATIVE_FLAGS) $(3) -c $$< -o $$@
$(NATIVE_BUILD)/$(1)/%.o: $(NATIVE_TESTS)/%.c $(NATIVE_HEADERS) native.mk
	@mkdir -p $$(@D)
	$(2) $(NATIVE_FLAGS) $(3) -c $$< -o $$@
$(NATIVE_BUILD)/$(1)/%.o: $(NATIVE_TESTS)/fuzz/%.c $(NATIVE_HEADERS) native.mk
	@mkdir -p $$(@D)
	$(2) $(NATIVE_FLAGS) $(3) -c $$< -o $$@
$(NATIVE_BUILD)/$(1)/tests: $$($(1)_LIBRARY) $(addprefix $(NATIVE_BUILD)/$(or $(5),$(1))/,$(call objects_of,$(NATIVE_TESTS)))
	$(2) -pthread $(3) $$^ -o $$@
$(NATIVE_BUILD)/$(1)/fuzz_%: $(NATIVE_BUILD)/$(1)/fuzz_%.o $(if $(4),,$(NATIVE_BUILD)/$(1)/driver.o) $$($(1)_LIBRARY) $$($(1)_MODEL)
	$(2) -pthread $(3) $(4) $$^ -o $$@
endef

$(eval $(call NATIVE_VARIANT,asan,$(CC),-O1 $(SANITIZERS) $(NATIVE_SMALL)))
$(eval $(call NATIVE_VARIANT,plain,$(CC),-O1 $(SANITIZERS) $(NATIVE_SMALL) -DSB3X_PLAIN_C,,asan))
$(eval $(call NATIVE_VARIANT,tsan,$(CC),-O1 -fsanitize=thread $(NATIVE_SMALL)))
$(eval $(call NATIVE_VARIANT,release,$(CC),-O3))
$(eval $(call NATIVE_VARIANT,fuzzer,$(CLANG),-O1 $(SANITIZERS) -fsanitize=fuzzer-no-link $(NATIVE_SMALL),-fsanitize=fuzzer))
$(eval $(call NATIVE_VARIANT,aarch64,$(ZIG) cc -target aarch64-linux-musl -static,-O2 $(NATIVE_SMALL)))
$(eval $(call NATIVE_VARIANT,aarch64-plain,$(ZIG) cc -target aarch64-linux-musl -static,-O2 $(NATIVE_SMALL) -DSB3X_PLAIN_C,,aarch64))
.SECONDARY:

# $(1): a build. Its checksum must be that of the release build, which takes the vector path.
check_checksum = found=$$($(2) $(NATIVE_BUILD)/$(1)/tests checksum) && test "$$found" = "$$($(NATIVE_BUILD)/release/tests checksum)" || \
	{ echo "The $(1) build encodes other bytes than the release build"; exit 1; }

native-test: $(addprefix $(NATIVE_BUILD)/asan/,tests $(FUZZ_TARGETS)) $(NATIVE_BUILD)/plain/tests $(NATIVE_BUILD)/release/tests
	$(NATIVE_BUILD)/asan/tests -r 5
	$(NATIVE_BUILD)/plain/tests -r 2
	$(call check_checksum,plain)
	cd $(NATIVE_BUILD) && for target in $(FUZZ_TARGETS); do \
	    ./asan/$$target -s 2 $(CURDIR)/$(NATIVE_TESTS)/corpus/$$target || exit 1; \
	done

# ---- sanitizers

sanitize: sanitize-c sanitize-python

sanitize-c: $(addprefix $(NATIVE_BUILD)/,asan/tests plain/tests tsan/tests release/tests)
	$(NATIVE_BUILD)/asan/tests -r 50
	$(NATIVE_BUILD)/plain/tests -r 20
	$(call check_checksum,plain)
	$(NATIVE_BUILD)/tsan/tests -r 3 threads store
	$(NATIVE_BUILD)/release/tests large

SANITIZED_LIBRARY := $(NATIVE_BUILD)/libsb3x-sanitized.so
SANITIZED_TESTS ?= $(addprefix tests/,test_store_properties.py test_codecs_properties.py test_array_view.py test_threads.py)

$(SANITIZED_LIBRARY): $(wildcard $(NATIVE)/*.c) $(NATIVE_HEADERS) native.mk
	@mkdir -p $(@D)
	$(CC) $(NATIVE_FLAGS) -O1 $(SANITIZERS) $(NATIVE_SMALL) -fPIC -shared -fvisibility=hidden $(filter %.c,$^) -o $@

# Python is not sanitized: the sanitizer has to be there before it, and libstdc++, whose exceptions it watches. Damaged data may
# name absurd sizes, which Python and libraries must see refused.
sanitize-python: $(SANITIZED_LIBRARY)
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libstdc++.so)" PYTHONMALLOC=malloc \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 SB3_EXTRA_BUFFERS_LIBRARY=$(SANITIZED_LIBRARY) STORE_EXAMPLES=4 \
	timeout $(SANITIZED_SECONDS) $(RUN)python -m pytest -q -p no:cacheprovider --capture=sys -k "not jit" $(SANITIZED_TESTS)

# ---- fuzzers

fuzz:
	@command -v $(CLANG) > /dev/null || \
	    { echo "libFuzzer is a part of clang, which is not installed: apt-get install clang libclang-rt-dev"; exit 1; }
	$(MAKE) -f native.mk $(addprefix $(NATIVE_BUILD)/fuzzer/,$(FUZZ_TARGETS))
	for target in $(FUZZ_TARGETS); do \
	    mkdir -p $(NATIVE_BUILD)/found/$$target; \
	    $(NATIVE_BUILD)/fuzzer/$$target -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -timeout=20 -artifact_prefix=$(NATIVE_BUILD)/ \
	        $(NATIVE_BUILD)/found/$$target $(NATIVE_TESTS)/corpus/$$target > $(NATIVE_BUILD)/$$target.log 2>&1 || \
	        { tail -n 40 $(NATIVE_BUILD)/$$target.log; exit 1; }; \
	    echo "$$target: $$(tail -n 1 $(NATIVE_BUILD)/$$target.log)"; \
	done

# Replace the committed corpus by the smallest one that reaches as much: seeds, and what `make fuzz` has found.
fuzz-corpus: $(addprefix $(NATIVE_BUILD)/fuzzer/,$(FUZZ_TARGETS)) $(addprefix $(NATIVE_BUILD)/asan/,$(FUZZ_TARGETS))
	for target in $(FUZZ_TARGETS); do \
	    rm -rf $(NATIVE_BUILD)/merged/$$target; \
	    mkdir -p $(NATIVE_BUILD)/merged/$$target $(NATIVE_BUILD)/seeds/$$target $(NATIVE_BUILD)/found/$$target; \
	    $(NATIVE_BUILD)/asan/$$target -w $(NATIVE_BUILD)/seeds/$$target || exit 1; \
	    $(NATIVE_BUILD)/fuzzer/$$target -merge=1 -use_counters=0 -max_len=8192 -verbosity=0 $(NATIVE_BUILD)/merged/$$target \
	        $(NATIVE_TESTS)/corpus/$$target $(NATIVE_BUILD)/seeds/$$target $(NATIVE_BUILD)/found/$$target || exit 1; \
	    rm -rf $(NATIVE_TESTS)/corpus/$$target; \
	    cp -r $(NATIVE_BUILD)/merged/$$target $(NATIVE_TESTS)/corpus/$$target; \
	done

# ---- another processor

qemu:
	@test -n "$(QEMU)" || { echo "qemu is not installed: apt-get install qemu-user"; exit 1; }
	@$(ZIG) version > /dev/null 2>&1 || { echo "zig is not installed: $(RUN)python -m pip install ziglang"; exit 1; }
	$(MAKE) -f native.mk $(addprefix $(NATIVE_BUILD)/,aarch64/tests aarch64-plain/tests release/tests)
	SB3X_TESTS_NO_FORK=1 $(QEMU) $(NATIVE_BUILD)/aarch64/tests -r 3
	SB3X_TESTS_NO_FORK=1 $(QEMU) $(NATIVE_BUILD)/aarch64-plain/tests -r 1
	$(call check_checksum,aarch64,$(QEMU))
	$(call check_checksum,aarch64-plain,$(QEMU))
