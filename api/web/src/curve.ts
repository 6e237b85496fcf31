/** Curves over the epochs of a training, with axes. */

export type Point = [epoch: number, value: number];

/** Where a curve is drawn, in the picture's own units. */
export const BOX = { left: 56, right: 350, top: 8, bottom: 152 };

/** Round numbers (1, 2 or 5 times a power of ten apart) from `low` to `high`, about `count` of them. */
export function ticks(low: number, high: number, count = 4): number[] {
  const rough = (high - low || Math.abs(high) || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5].find((factor) => rough / power < factor * 1.5) ?? 10) * power;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** Both axes and the curve; `whole`: the last epoch of the training, up to which the axis reaches. */
export function chart(points: Point[], whole: number) {
  const values = points.map(([, value]) => value);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const room = 0.05 * (most - least || Math.abs(most) || 1);
  const [low, high] = [least - room, most + room];
  const end = Math.max(whole, 1, ...points.map(([epoch]) => epoch));
  const x = (epoch: number) => BOX.left + ((BOX.right - BOX.left) * epoch) / end;
  const y = (value: number) => BOX.bottom - ((BOX.bottom - BOX.top) * (value - low)) / (high - low);
  const place = ([epoch, value]: Point) => [x(epoch).toFixed(1), y(value).toFixed(1)] as const;
  return {
    line: points.map((point) => place(point).join(',')).join(' '),
    last: place(points.at(-1) ?? [0, low]),
    across: ticks(0, end).filter(Number.isInteger).map((at) => ({ at, x: x(at) })),
    up: ticks(low, high).map((at) => ({ at, y: y(at) })),
  };
}
