/** The points of a polyline of 320 x 120: x by rank, y from the smallest to the largest value. */
export function points(values: number[]): string {
  const low = Math.min(...values);
  const range = Math.max(...values) - low || 1;
  const x = (i: number) => (values.length > 1 ? (320 * i) / (values.length - 1) : 160);
  return values.map((value, i) => `${x(i).toFixed(1)},${(114 - (108 * (value - low)) / range).toFixed(1)}`).join(' ');
}
