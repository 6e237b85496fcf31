/** Files that are sent as one. */
import { zipSync } from 'fflate';

/** Files under these names in a zip. */
export async function zipOf(files: (readonly [string, Blob])[]): Promise<Blob> {
  const contents = files.map(async ([name, file]) => [name, new Uint8Array(await file.arrayBuffer())] as const);
  return new Blob([zipSync(Object.fromEntries(await Promise.all(contents)), { level: 0 }) as Uint8Array<ArrayBuffer>], { type: 'application/zip' });
}
