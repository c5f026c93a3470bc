"""Records of what an agent saw and did: a ring of frames, rewards, actions and features. Needs NumPy only.

from sb3_extra_buffers.recording import RecordBuffer
record = RecordBuffer(res=(84, 84), ch_num=4, compression_method="auto")
record.add(frame, reward, action)
record.save_video("episode.gif")
"""

from __future__ import annotations

from sb3_extra_buffers.recording.record import DummyRecordBuffer, FramelessRecordBuffer, RecordBuffer

__all__ = ["DummyRecordBuffer", "FramelessRecordBuffer", "RecordBuffer"]
