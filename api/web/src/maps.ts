/** The service's arrays, and their values as colours. */
import { cmapper, NVImage } from '@niivue/niivue';
import { unzipSync } from 'fflate';

/** Five colours from the least to the most: their red, green and blue. */
const ramp = (...[red, green, blue]: [number[], number[], number[]]): Uint8ClampedArray =>
  cmapper.makeLut(red, green, blue, [255, 255, 255, 255, 255], [0, 64, 128, 192, 255], false);
export const RISING = ramp([13, 32, 31, 146, 250], [17, 64, 138, 201, 240], [23, 104, 133, 120, 170]);
/** From the most below zero through 0 to the most above. */
export const SIGNED = ramp([76, 38, 18, 130, 235], [154, 77, 22, 62, 140], [214, 118, 28, 34, 72]);

/** Maps `[N, H, W]` of one meaning, and their largest magnitude. */
export interface Maps { width: number; height: number; data: Float32Array; most: number }

/** The arrays of an npz, by name. */
export async function npz(bytes: Uint8Array): Promise<Record<string, Maps>> {
  const arrays = Object.entries(unzipSync(bytes)).map(async ([name, url]): Promise<[string, Maps]> => {
    const { hdr, img } = await NVImage.loadFromUrl({ url, name: 'array.npy' });
    const [, width = 0, height = 0] = hdr?.dims ?? [];
    return [name.replace(/\.npy$/, ''), part({ width, height, data: img as Float32Array, most: 0 }, 0)];
  });
  return Object.fromEntries(await Promise.all(arrays));
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
