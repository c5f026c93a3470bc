// What the server knows, as JSON. Addresses are relative, so a token at their beginning stays there.

export class ServerError extends Error {}

export function address(path, query = {}) {
  const url = new URL(`api/${path}`, document.baseURI);
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  return url;
}

export async function get(path, query) {
  let response;
  try {
    response = await fetch(address(path, query));
  } catch {
    throw new ServerError("The viewer does not answer: it may have been ended.");
  }
  const said = await response.json().catch(() => ({ error: `The viewer answered ${response.status}.` }));
  if (!response.ok) throw new ServerError(said.error ?? `The viewer answered ${response.status}.`);
  return said;
}

export async function picture(path, query) {
  const response = await fetch(address(path, query));
  if (!response.ok) throw new ServerError((await response.json().catch(() => ({}))).error ?? `No picture: ${response.status}`);
  return createImageBitmap(await response.blob(), { colorSpaceConversion: "none", premultiplyAlpha: "none" });
}
