/** Numbers as colours, and pictures side by side under a slider. */
import { cmapper, NVImage } from '@niivue/niivue';
import { unzipSync } from 'fflate';
import { make, row } from './dom.js';

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
  return { width, height, data: own, most: own.reduce((most, value) => Math.max(most, Math.abs(value)), 0) };
}

/** A picture for each map, with its name. */
export const pictures = (maps: Maps, names: string[], colors: Uint8ClampedArray): [HTMLCanvasElement, HTMLElement][] =>
  names.map((name, i) => {
    const { width, height, data } = part(maps, i, 1);
    const picture = new ImageData(width, height);
    data.forEach((value, at) => {
      const share = value / (maps.most || 1);
      const level = Math.round(255 * (colors === SIGNED ? (share + 1) / 2 : share));
      picture.data.set(colors.subarray(4 * level, 4 * level + 4), 4 * at);
    });
    const canvas = make('canvas', { width, height });
    canvas.getContext('2d')?.putImageData(picture, 0, 0);
    return [canvas, make('span', {}, name)];
  });

/** Pose vectors `[J][A]` as signed bars, a row a capsule. */
export function bars(poses: number[][], lengths: number[], names: string[]): HTMLElement {
  const most = Math.max(1e-6, ...poses.flat().map(Math.abs));
  return make('table', {}, ...names.map((name, j) => {
    const pose = poses[j] ?? [];
    const ariaLabel = `${name}: ${pose.map((value) => value.toFixed(3)).join(', ')}`;
    return row([name, make('div', { className: 'bars', role: 'img', ariaLabel }, ...pose.map((value, a) => make('i', {
      title: `atom ${a}: ${value.toFixed(4)}`, className: value < 0 ? 'down' : 'up',
      style: `--size: ${(50 * Math.abs(value)) / most}%`,
    }))), `length ${lengths[j]?.toFixed(3)}`], 'pose');
  }));
}

/** Coupling coefficients `[J][J above]` as a table. */
export function couplingTable(couplings: number[][], below: string[], above: string[]): HTMLElement {
  const most = Math.max(1e-6, ...couplings.flat());
  const head = (name: string) => make('th', {}, name);
  const cell = (value: number) => make('td', { style: `--share: ${(70 * value) / most}%` }, value.toFixed(2));
  const rows = below.map((name, i) => row([head(name), ...(couplings[i] ?? []).map(cell)]));
  return make('table', { className: 'heat' }, row(['', ...above].map(head)), ...rows);
}

/** Which of `count` pictures lies nearest to a place from 0 to 1. */
export const nearest = (place: number, count: number): number => Math.round(Math.min(1, Math.max(0, place)) * (count - 1));

/** Pictures under a slider: a few at once, then more of them; nothing is blended. */
export class Strip {
  private sheet: ImageBitmap | undefined;
  count = 0;

  /** `moved` is called when another picture may be shown. */
  constructor(private readonly slider: HTMLInputElement, private readonly moved: () => void) {
    slider.oninput = moved;
  }

  /** Fetch pictures side by side, coarse first, then finer. */
  async load(counts: number[], fetch: (count: number) => Promise<Response>): Promise<void> {
    this.slider.disabled = true;
    for (const count of counts) {
      this.sheet = await createImageBitmap(await (await fetch(count)).blob());
      this.count = count;
      this.slider.disabled = false;
      this.moved();
    }
  }

  /** Draw the picture nearest to the slider, or to a place from 0 to 1; which one it was. */
  draw(canvas: HTMLCanvasElement, place?: number): number {
    const [low, high] = [Number(this.slider.min), Number(this.slider.max)];
    const at = nearest(place ?? (this.slider.valueAsNumber - low) / (high - low), this.count);
    if (this.sheet) drawCell(canvas, this.sheet, at, this.count);
    return at;
  }
}

/** Draw one of the pictures side by side into a canvas of its size. */
export function drawCell(canvas: HTMLCanvasElement, sheet: ImageBitmap, at: number, count: number): void {
  Object.assign(canvas, { width: sheet.width / count, height: sheet.height });
  canvas.getContext('2d')?.drawImage(sheet, -at * canvas.width, 0);
}
