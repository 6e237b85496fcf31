/** An image and its label map, as `caps-med data check` and `train` take them. */
import { zipSync } from 'fflate';
import { decoded } from './viewer.js';

/** The folders `images` and `labels` in a zip, with a file of the same name each; both are NIfTI. */
export async function trainingPair(name: string, image: Uint8Array, labels: Uint8Array): Promise<Blob> {
  const [one, two] = await Promise.all([decoded(image), decoded(labels)]);
  const [size, other] = [one, two].map(({ hdr }) => (hdr?.dims ?? []).slice(1, 4).join(' × '));
  if (size !== other) throw new Error(`the image has ${size} voxels, the label map ${other}: they do not belong together`);
  const files = { [`images/${name}.nii.gz`]: image, [`labels/${name}.nii.gz`]: labels };
  return new Blob([zipSync(files, { level: 0 }) as Uint8Array<ArrayBuffer>], { type: 'application/zip' });
}
