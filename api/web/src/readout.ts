/** What is at a place of an image, for people. */
import type { NVImage } from '@niivue/niivue';
import { apart } from './names.js';

const SIDES = ['LR', 'PA', 'IS'];

/** A position in millimetres with its anatomical directions: ``R 12.0 · A 3.5 · S 40.0 mm``. */
export const position = (mm: number[]): string =>
  `${mm.slice(0, 3).map((value, axis) => `${SIDES[axis]?.[value < 0 ? 0 : 1]} ${Math.abs(value).toFixed(1)}`).join(' · ')} mm`;

/** A voxel as the file counts it: NiiVue counts to the patient's right, front and top. */
const inFile = ({ permRAS = [1, 2, 3], dimsRAS = [] }: NVImage, at: number[]): number[] => {
  const found = [0, 0, 0];
  for (const [i, axis] of [...permRAS].entries()) found[Math.abs(axis) - 1] = axis < 0 ? (dimsRAS[i + 1] as number) - 1 - (at[i] as number) : (at[i] as number);
  return found;
};

/** The place, in millimetres where these mean anything; the voxel of the file; the value there, and the label's name; `painted`: its id, if it was painted on. */
export function readout(mm: number[], image: NVImage, labels: NVImage | undefined, geometry: boolean, painted?: number): string {
  const voxel = (of: NVImage): [number, number, number] => [...of.mm2vox(mm)].slice(0, 3).map(Math.round) as [number, number, number];
  const at = voxel(image);
  const inside = at.every((index, axis) => index >= 0 && index < (image.dimsRAS?.[axis + 1] ?? 0));
  if (!inside) return '';
  const [column, row, slice] = inFile(image, at);
  const where = geometry ? [position(mm), `voxel ${column}, ${row}, ${slice}`] : [`column ${column}, row ${row}`];
  const value = image.getValue(...at);
  const id = painted ?? (labels && Math.round(labels.getValue(...voxel(labels))));
  const name = id === undefined ? undefined : labels?.colormapLabel?.labels?.[id - (labels.colormapLabel.min ?? 0)];
  return [...where, `value ${Number(value.toPrecision(5))}`, ...(name ? [apart(name)] : [])].join(' · ');
}
