/** One slice of an image and its label map, drawn without WebGL. */
import type { NVImage } from '@niivue/niivue';
import { channels } from './colours.js';
import { thinAxis } from './viewer.js';

/** `picture`: the image in colour. */
export interface Flat { image: NVImage; picture?: NVImage | undefined; labels?: NVImage | undefined; low: number; high: number; opacity: number; slice: number; mirrored: boolean }

/** How many slices there are: axial ones, or along the axis where the image is thin. */
export const slices = (image: NVImage): number => image.dimsRAS?.[1 + normal(image)] ?? 1;
const normal = (image: NVImage): number => (thinAxis(image) < 0 ? 2 : thinAxis(image));

/** Draw it as NiiVue would into a canvas of its size; `mirrored`: the patient's right on the left. */
export const drawFlat = ({ image, picture: coloured, labels, low, high, opacity, slice, mirrored }: Flat) => (canvas: HTMLCanvasElement): void => {
  const [, nx = 1, ny = 1, nz = 1] = image.dimsRAS ?? [];
  const steps = [1, nx, nx * ny];
  const [across, up] = [0, 1, 2].filter((axis) => axis !== normal(image)) as [number, number];
  const [width, height] = [[nx, ny, nz][across] as number, [nx, ny, nz][up] as number];
  const [values, ids] = [image.img2RAS(), labels?.img2RAS()];
  const { scl_slope: slope, scl_inter: offset } = image.hdr ?? { scl_slope: 1, scl_inter: 0 };
  const colours = coloured && channels(image, coloured);
  const lut = labels?.colormapLabel;
  const picture = new ImageData(width, height);
  const flipped = mirrored && across === 0;
  for (let row = 0; row < height; row++) for (let column = 0; column < width; column++) {
    const at = (flipped ? width - 1 - column : column) * (steps[across] as number) + (height - 1 - row) * (steps[up] as number) + slice * (steps[normal(image)] as number);
    const value = Number(values[at]) * (slope || 1) + offset;
    const level = (255 * (value - low)) / (high - low || 1);
    const entry = ids && lut ? 4 * (Number(ids[at]) - (lut.min ?? 0)) : -1;
    const share = entry >= 0 ? (opacity * (lut?.lut[entry + 3] ?? 0)) / 255 : 0;
    const pixel = 4 * (row * width + column);
    for (let k = 0; k < 3; k++) picture.data[pixel + k] = (1 - share) * (colours?.[k]?.[at] ?? level) + share * (lut?.lut[entry + k] ?? 0);
    picture.data[pixel + 3] = 255;
  }
  Object.assign(canvas, { width, height }).getContext('2d')?.putImageData(picture, 0, 0);
};
