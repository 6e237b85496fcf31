/** Numbers as colours: maps of capsules, bars of a pose, a table of couplings. */
import { part, type Values } from './arrays.js';
import { make } from './dom.js';

type Stops = [number, number, number][];
const RISING: Stops = [[13, 17, 23], [32, 64, 104], [31, 138, 133], [146, 201, 120], [250, 240, 170]];
const SIGNED: Stops = [[76, 154, 214], [38, 77, 118], [18, 22, 28], [130, 62, 34], [235, 140, 72]];

/** The colour at a share from 0 to 1 of the way along `stops`. */
export function ramp(stops: Stops, share: number): [number, number, number] {
  const at = Math.min(0.9999, Math.max(0, share)) * (stops.length - 1);
  const [low, high, rest] = [stops[Math.floor(at)] as Stops[0], stops[Math.floor(at) + 1] as Stops[0], at % 1];
  return [0, 1, 2].map((k) => (low[k] as number) * (1 - rest) + (high[k] as number) * rest) as Stops[0];
}

/** Draw `[H, W]`: lengths from 0 to `most`, or signed values from `-most` to `most`. */
export function drawMap(canvas: HTMLCanvasElement, { shape, data }: Values, most: number, signed: boolean): void {
  const [height, width] = shape as [number, number];
  Object.assign(canvas, { width, height });
  const picture = new ImageData(width, height);
  const table = Array.from({ length: 256 }, (_, i) => ramp(signed ? SIGNED : RISING, i / 255));
  data.forEach((value, i) => {
    const share = most ? value / most : 0;
    const level = Math.round(255 * Math.min(1, Math.max(0, signed ? (share + 1) / 2 : share)));
    picture.data.set([...(table[level] as number[]), 255], 4 * i);
  });
  canvas.getContext('2d')?.putImageData(picture, 0, 0);
}

/** A tile for each map of `[N, H, W]`; buttons where a click means something. */
export function tiles(
  maps: Values, names: string[], most: number, signed: boolean, chosen?: (index: number) => void,
): HTMLElement[] {
  return names.map((name, i) => {
    const canvas = make('canvas');
    drawMap(canvas, part(maps, i), most, signed);
    const inside = [canvas, make('span', {}, name)];
    if (!chosen) return make('figure', { className: 'tile' }, ...inside);
    return make('button', { type: 'button', className: 'tile', onclick: () => chosen(i) }, ...inside);
  });
}

/** Pose vectors `[J][A]` as signed bars, a row a capsule. */
export function bars(poses: number[][], lengths: number[], names: string[]): HTMLElement[] {
  const most = Math.max(1e-6, ...poses.flat().map(Math.abs));
  return poses.map((pose, j) => {
    const row = make('div', { className: 'bars' });
    row.setAttribute('role', 'img');
    row.setAttribute('aria-label', `${names[j]}: ${pose.map((value) => value.toFixed(3)).join(', ')}`);
    row.append(...pose.map((value, a) => {
      const bar = make('i', { title: `atom ${a}: ${value.toFixed(4)}` }, make('b'));
      bar.className = value < 0 ? 'down' : 'up';
      (bar.firstElementChild as HTMLElement).style.height = `${(50 * Math.abs(value)) / most}%`;
      return bar;
    }));
    return make('div', { className: 'pose' }, make('span', {}, `${names[j]}`), row,
      make('span', { className: 'number' }, `length ${(lengths[j] ?? 0).toFixed(3)}`));
  });
}

/** Coupling coefficients `[J][J above]` as a table. */
export function couplingTable(couplings: number[][], below: string[], above: string[]): HTMLElement {
  const most = Math.max(1e-6, ...couplings.flat());
  const rows = couplings.map((row, i) => make('tr', {}, make('th', {}, below[i] ?? ''), ...row.map((value) => {
    const cell = make('td', { className: 'number' }, value.toFixed(2));
    cell.style.setProperty('--share', `${Math.round((70 * value) / most)}%`);
    return cell;
  })));
  const head = make('tr', {}, make('th'), ...above.map((name) => make('th', {}, name)));
  return make('table', { className: 'heat' }, make('thead', {}, head), make('tbody', {}, ...rows));
}
