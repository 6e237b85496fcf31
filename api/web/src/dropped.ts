/** What was dropped on the page. */

/** The folders of files that were dropped in one. */
const folders = new WeakMap<File, string>();

/** The folder that a file was dropped in, as a path; empty if nobody knows. */
export const folderOf = (file: File): string => folders.get(file) ?? '';

/** The innermost folder that all of some files were dropped in, by its name; empty if nobody knows. */
export function commonFolder(files: readonly File[]): string {
  const [first = [], ...others] = files.map((file) => folderOf(file).split('/'));
  const apart = first.findIndex((name, depth) => others.some((other) => other[depth] !== name));
  return first.slice(0, apart < 0 ? undefined : apart).at(-1) ?? '';
}

/** The files that were dropped, those of folders in place of these; hidden ones of folders are left out. Fails where a folder cannot be read. */
export async function filesOf({ files, items }: DataTransfer): Promise<File[]> {
  const entries = [...items].map((item) => item.webkitGetAsEntry?.()); // now: they are gone once the event is over
  if (!entries.some((entry) => entry?.isDirectory)) return [...files];
  return (await Promise.all(entries.map((entry) => entry && within(entry)))).flatMap((found) => found ?? []);
}

const isFolder = (entry: FileSystemEntry): entry is FileSystemDirectoryEntry => entry.isDirectory;
const isFile = (entry: FileSystemEntry): entry is FileSystemFileEntry => entry.isFile;

async function within(entry: FileSystemEntry): Promise<File[]> {
  if (isFile(entry)) {
    const file = await new Promise<File>((found, failed) => entry.file(found, failed));
    folders.set(file, entry.fullPath.replace(/\/[^/]*$/, ''));
    return [file];
  }
  if (!isFolder(entry)) return [];
  const reader = entry.createReader();
  const found: File[] = [];
  for (let some: FileSystemEntry[] = [], first = true; first || some.length; first = false) { // a browser tells a hundred at a time
    some = await new Promise<FileSystemEntry[]>((read, failed) => reader.readEntries(read, failed));
    found.push(...(await Promise.all(some.filter(({ name }) => !name.startsWith('.')).map(within))).flat());
  }
  return found;
}
