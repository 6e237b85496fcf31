/** Numbers as colours: maps of capsules, bars of a pose, a table of couplings. */
import { cmapper, NVImage } from '@niivue/niivue';
import { unzipSync } from 'fflate';
import { make, row } from './dom.js';

const OPAQUE = [255, 255, 255, 255, 255];
const EVENLY = [0, 64, 128, 192, 255];
/** From 0 to the most; from the most below zero through 0 to the most above. */
export const RISING = cmapper.makeLut([13, 32, 31, 146, 250], [17, 64, 138, 201, 240], [23, 104, 133, 120, 170], OPAQUE, EVENLY, false);
export const SIGNED = cmapper.makeLut([76, 38, 18, 130, 235], [154, 77, 22, 62, 140], [214, 118, 28, 34, 72], OPAQUE, EVENLY, false);

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
  return { width, height, data: own, most: own.reduce((most, value) => Math.max(most, Math.abs(value)), 0) };
}

/** A picture for each map, with its name. */
export const pictures = (maps: Maps, names: string[], colors: Uint8ClampedArray): [HTMLCanvasElement, HTMLElement][] =>
  names.map((name, i) => {
    const { width, height, data } = part(maps, i, 1);
    const canvas = make('canvas', { width, height });
    const picture = new ImageData(width, height);
    data.forEach((value, at) => {
      const share = value / (maps.most || 1);
      const level = Math.round(255 * (colors === SIGNED ? (share + 1) / 2 : share));
      picture.data.set(colors.subarray(4 * level, 4 * level + 4), 4 * at);
    });
    canvas.getContext('2d')?.putImageData(picture, 0, 0);
    return [canvas, make('span', {}, name)];
  });

/** Pose vectors `[J][A]` as signed bars, a row a capsule. */
export function bars(poses: number[][], lengths: number[], names: string[]): HTMLElement {
  const most = Math.max(1e-6, ...poses.flat().map(Math.abs));
  return make('table', {}, ...poses.map((pose, j) => row([names[j] ?? '', make('div', {
    className: 'bars', role: 'img', ariaLabel: `${names[j]}: ${pose.map((value) => value.toFixed(3)).join(', ')}`,
  }, ...pose.map((value, a) => make('i', {
    title: `atom ${a}: ${value.toFixed(4)}`, className: value < 0 ? 'down' : 'up',
    style: `--size: ${(50 * Math.abs(value)) / most}%`,
  }))), `length ${(lengths[j] ?? 0).toFixed(3)}`], 'pose')));
}

/** Coupling coefficients `[J][J above]` as a table. */
export function couplingTable(couplings: number[][], below: string[], above: string[]): HTMLElement {
  const most = Math.max(1e-6, ...couplings.flat());
  const heads = ['', ...above].map((name) => make('th', {}, name));
  return make('table', { className: 'heat' }, row(heads), ...couplings.map((values, i) => row([make('th', {}, below[i] ?? ''),
    ...values.map((value) => make('td', { style: `--share: ${(70 * value) / most}%` }, value.toFixed(2)))])));
}
