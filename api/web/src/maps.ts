/** The service's arrays, and their values as colours. */
import { cmapper } from '@niivue/niivue';
import { unzipSync } from 'fflate';

/** Five colours from the least to the most: their red, green and blue. */
const ramp = (...[red, green, blue]: [number[], number[], number[]]): Uint8ClampedArray =>
  cmapper.makeLut(red, green, blue, [255, 255, 255, 255, 255], [0, 64, 128, 192, 255], false);
export const RISING = ramp([13, 32, 31, 146, 250], [17, 64, 138, 201, 240], [23, 104, 133, 120, 170]);
/** From the most below zero through 0 to the most above. */
export const SIGNED = ramp([76, 38, 18, 130, 235], [154, 77, 22, 62, 140], [214, 118, 28, 34, 72]);

/** Maps `[N, H, W]` of one meaning, and their largest magnitude; `shape`: of the whole array. */
export interface Maps { width: number; height: number; data: Float32Array; most: number; shape?: number[] }

/** The arrays of an npz, by name; the service's are of float32, in C order. */
export function npz(bytes: Uint8Array): Record<string, Maps> {
  const arrays = Object.entries(unzipSync(bytes)).map(([name, npy]): [string, Maps] => [name.replace(/\.npy$/, ''), array(npy)]);
  return Object.fromEntries(arrays);
}

/** One array (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, version 1). */
function array(npy: Uint8Array): Maps {
  const begin = 10 + new DataView(npy.buffer, npy.byteOffset).getUint16(8, true);
  const header = new TextDecoder().decode(npy.subarray(10, begin));
  const shape = /'shape': \(([^)]*)\)/.exec(header)?.[1]?.split(',').filter((edge) => edge.trim()).map(Number) ?? [];
  if (!header.includes("'<f4'") || header.includes("'fortran_order': True")) throw new Error(`the service sent an array of another kind: ${header}`);
  const [height = 1, width = 1] = shape.slice(-2);
  const data = new Float32Array(npy.slice(begin).buffer);
  return { width, height, data, most: largest(data), shape };
}

/** `count` maps from the one numbered `from` on, without a copy; by default all. */
export function part({ width, height, data }: Maps, from: number, count = data.length / width / height): Maps {
  const own = data.subarray(from * width * height, (from + count) * width * height);
  return { width, height, data: own, most: largest(own) };
}

/** The largest magnitude. */
export const largest = (values: Iterable<number>): number => {
  let most = 0;
  for (const value of values) most = Math.max(most, Math.abs(value));
  return most;
};

/** What is told of capsules `[J, A, H, W]`: their lengths, or else, of matrix capsules, their activations. */
export function measureOf(told: Maps | undefined, capsules: Maps | undefined): 'length' | 'activation' | undefined {
  if (!told || !capsules) return undefined;
  const [, atoms = 0] = capsules.shape ?? [];
  const positions = capsules.width * capsules.height;
  const length = Math.hypot(...Array.from({ length: atoms }, (_, atom) => capsules.data[atom * positions] ?? 0));
  return Math.abs(length - (told.data[0] ?? 0)) < 1e-3 ? 'length' : 'activation';
}

/** Draw one of the maps into a canvas of its size. */
export const drawMap = (maps: Maps, at: number, colors: Uint8ClampedArray) => (canvas: HTMLCanvasElement): void => {
  const { width, height, data } = part(maps, at, 1);
  const picture = new ImageData(width, height);
  data.forEach((value, i) => {
    const share = value / (maps.most || 1);
    const level = Math.round(255 * (colors === SIGNED ? (share + 1) / 2 : share));
    picture.data.set(colors.subarray(4 * level, 4 * level + 4), 4 * i);
  });
  Object.assign(canvas, { width, height }).getContext('2d')?.putImageData(picture, 0, 0);
};

/** Draw picture `at` of `channels` maps each, three as red, green and blue, into a canvas of its size; `low` is black, `high` white. */
export const drawPicture = (maps: Maps, at = 0, channels = 1, low = 0, high = 1) => (canvas: HTMLCanvasElement): void => {
  const { width, height, data } = part(maps, at * channels, channels);
  const picture = new ImageData(width, height);
  const plane = width * height;
  for (let i = 0; i < plane; i++) {
    for (let k = 0; k < 3; k++) picture.data[4 * i + k] = (255 * ((data[(channels === 3 ? k : 0) * plane + i] ?? 0) - low)) / (high - low);
    picture.data[4 * i + 3] = 255;
  }
  Object.assign(canvas, { width, height }).getContext('2d')?.putImageData(picture, 0, 0);
};
