/** A curve as SVG, fitted into its box. */
const SVG = 'http://www.w3.org/2000/svg';
const [WIDTH, HEIGHT] = [320, 120];

/** The points of a polyline over a box: x by rank, y from the smallest to the largest value. */
export function points(values: number[]): string {
  const low = Math.min(...values);
  const range = Math.max(...values) - low || 1;
  const x = (i: number) => (WIDTH * (values.length > 1 ? i / (values.length - 1) : 0.5)).toFixed(1);
  const y = (value: number) => (HEIGHT - 6 - ((HEIGHT - 12) * (value - low)) / range).toFixed(1);
  return values.map((value, i) => `${x(i)},${y(value)}`).join(' ');
}

export function drawCurve(svg: SVGElement, values: number[]): void {
  svg.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute('preserveAspectRatio', 'none');
  const line = document.createElementNS(SVG, 'polyline');
  line.setAttribute('points', points(values));
  svg.replaceChildren(...(values.length ? [line] : []));
}
