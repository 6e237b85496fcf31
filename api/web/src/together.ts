/** Files that are sent together, because they are one image: a DICOM series, or a header and its voxels. */
import { folderOf } from './dropped.js';
import { post } from './service.svelte.js';
import { unlessStopped } from './work.svelte.js';
import { zipOf } from './zip.js';

/** The files of an image; several are sent as a zip, under their names in it. */
export interface Image { name: string; files: [string, File][] }
/** What the service tells of some files, by the names that they were sent under. */
interface Division { images: { label: string; files: string[] }[]; left_out: { file: string; reason: string }[] }

/** Names of files that are not DICOM, which may have any name, and need not say what it is in its content. */
const NO_SLICES = /\.(nii|gz|hdr|img|nrrd|nhdr|mha|mhd|raw|png|jpe?g|tiff?|bmp|npy|npz|zip)$/i;
/** Headers whose voxels are in a second file, which is called like them. */
const HEADERS = /\.(mhd|nhdr|hdr|hdr\.gz)$/i;
const VOXELS = /\.(z?raw|raw\.gz|img|img\.gz)$/i;
/** Bytes at the beginning of a file that tell of which series it is; more are sent if all together are no more than the second number. */
const HEAD = 2 ** 14;
const HEADS = 2 ** 25;

export const isDicom = async (file: Blob): Promise<boolean> => (await file.slice(128, 132).text()) === 'DICM';
/** Whether a file's name says that it is of another format. */
export const isOther = ({ name }: File): boolean => NO_SLICES.test(name);
export const isHeader = ({ name }: File): boolean => HEADERS.test(name);

/** Files as images, in their order: the slices of a DICOM series in a folder are one, and so are a header and its voxels. `not`: which files are no images, and why. */
export async function imagesOf(files: readonly File[], signal: AbortSignal): Promise<{ images: Image[]; not: string[] }> {
  const together = headed(files);
  const not = new Map<File, string>();
  for (const [folder, slices] of await byFolder(files)) if (slices.length > 1) {
    const { images, left_out } = await divided(slices, signal);
    const all = (names: string[]) => names.flatMap((name) => slices[Number(name)] ?? []);
    const several = images.filter((image) => image.files.length > 1);
    const told = new Set(several.map(({ label }) => label)).size === several.length;
    for (const [number, image] of several.entries()) {
      const within = all(image.files);
      const stem = folder.replace(/.*\//, '') || within[0]?.name.replace(/\.[^.]*$/, '');
      const label = told ? image.label : `series${number + 1}`;
      const one = { name: `${several.length > 1 ? `${stem}-${label}` : stem}.dcm`, files: numbered(within) };
      for (const file of within) together.set(file, one);
    }
    for (const { file, reason } of left_out) for (const one of all([file])) not.set(one, `${one.name}: ${reason}`);
  }
  const images = files.filter((file) => !not.has(file)).map((file): Image => together.get(file) ?? { name: file.name, files: [[file.name, file]] });
  return { images: [...new Set(images)], not: [...not.values()] };
}

/** What is sent of an image: its file, or a zip of its files under the name of the image. */
export async function sentOf({ name, files }: Image): Promise<File | undefined> {
  return files.length > 1 ? new File([await zipOf(files)], name) : files[0]?.[1];
}

/** The headers and their voxels, each with the image that they are. */
function headed(files: readonly File[]): Map<File, Image> {
  const together = new Map<File, Image>();
  const stem = (file: File, end: RegExp) => `${folderOf(file)}/${file.name.replace(end, '')}`;
  const voxels = new Map(files.filter(({ name }) => VOXELS.test(name)).map((file) => [stem(file, VOXELS), file]));
  for (const file of files.filter(isHeader)) {
    const beside = voxels.get(stem(file, HEADERS));
    const image: Image = { name: file.name, files: [file, beside].flatMap((one) => (one ? [[one.name, one]] : [])) };
    for (const [, one] of image.files) together.set(one, image);
  }
  return together;
}

/** The files that may be slices. */
async function byFolder(files: readonly File[]): Promise<Map<string, File[]>> {
  const folders = new Map<string, File[]>();
  for (const file of files) {
    const dicom = await isDicom(file).catch(() => undefined); // what cannot be read is told once it is sent
    if (dicom === undefined || (isOther(file) && !dicom)) continue;
    const folder = folderOf(file);
    const within = folders.get(folder) ?? [];
    within.push(file);
    folders.set(folder, within);
  }
  return folders;
}

async function divided(slices: readonly File[], signal: AbortSignal): Promise<Division> {
  const size = Math.max(HEAD, HEADS / slices.length);
  const archive = await unlessStopped(signal, zipOf(numbered(slices.map((file) => file.slice(0, size)))));
  return (await post('v1/images/series', { archive }, signal)).json();
}

/** Files under numbers: their names may be anything, and there more than once. */
export const numbered = <T extends Blob>(files: readonly T[]): [string, T][] => files.map((file, i) => [String(i), file]);
