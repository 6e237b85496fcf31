/** The size of an answer as people say it, x first: of a picture [rows, columns], of a volume [x, y, z]. */
export function sizeText(shape: readonly number[]): string {
  const picture = shape.length === 2;
  return `${(picture ? [...shape].reverse() : shape).join(' × ')} ${picture ? 'pixels' : 'voxels'}`;
}
