import { formatted } from './catalog.svelte.js';

/** The size of an answer as people say it, x first: of a picture [rows, columns], of a volume [x, y, z]; `spacing`: of its voxels, in mm. */
export function sizeText(shape: readonly number[], spacing: readonly number[] = []): string {
  const picture = shape.length === 2;
  const edges = spacing.map((edge) => formatted(edge)).join(' × ');
  return `${(picture ? [...shape].reverse() : shape).join(' × ')} ${picture ? 'pixels' : 'voxels'}${edges && ` of ${edges} mm`}`;
}
