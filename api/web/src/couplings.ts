/** How the capsules of a layer are coupled to the classes, summed over their positions. */
import type { Maps } from './maps.js';

/** Which capsules of a type count: all of them as much as they are long, or the longest alone. */
export const COUNTED = { all: 'all its capsules, by their lengths', longest: 'its longest capsule' };
export type Counted = keyof typeof COUNTED;

/** How much each position counts, adding up to one. */
function shares(lengths: Float32Array, counted: Counted): Float32Array {
  const longest = lengths.indexOf(Math.max(...lengths));
  const total = lengths.reduce((sum, length) => sum + length, 0);
  if (counted === 'longest') return lengths.map((_, p) => Number(p === longest));
  return lengths.map((length) => (total ? length / total : 1 / lengths.length));
}

/**
 * The mean coupling coefficient of each capsule type to each class in one iteration: `[types][classes]`.
 * `couplings`: `[T, I, J, H, W]`; `lengths`: `[I, H, W]`.
 */
export function meanCouplings(couplings: Maps, lengths: Maps, iteration: number, counted: Counted = 'all'): number[][] {
  const [, types = 0, classes = 0] = couplings.shape ?? [];
  const positions = couplings.width * couplings.height;
  return Array.from({ length: types }, (_, i) => {
    const weights = shares(lengths.data.subarray(i * positions, (i + 1) * positions), counted);
    return Array.from({ length: classes }, (_, j) => {
      const from = ((iteration * types + i) * classes + j) * positions;
      return weights.reduce((sum, weight, p) => sum + weight * (couplings.data[from + p] ?? 0), 0);
    });
  });
}

/** The mean length of each capsule type. */
export function meanLengths({ data, width, height }: Maps): number[] {
  const positions = width * height;
  return Array.from({ length: data.length / positions }, (_, i) =>
    data.subarray(i * positions, (i + 1) * positions).reduce((sum, length) => sum + length, 0) / positions);
}
