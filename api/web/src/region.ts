/** A rectangle of pixels, as the service takes it. */
export interface Region { row: number; column: number; height: number; width: number }
export interface Size { rows: number; columns: number }

const within = (value: number, low: number, high: number): number => Math.max(low, Math.min(high, value));

/** The pixels between two places, each as rows and columns that may have a fraction; undefined if it is hardly any. */
export function between([one, two]: [[number, number], [number, number]], { rows, columns }: Size): Region | undefined {
  const [top, left] = [0, 1].map((axis) => Math.floor(Math.min(one[axis] ?? 0, two[axis] ?? 0)));
  const [bottom, right] = [0, 1].map((axis) => Math.ceil(Math.max(one[axis] ?? 0, two[axis] ?? 0)));
  const [row, column] = [within(top ?? 0, 0, rows - 1), within(left ?? 0, 0, columns - 1)];
  const [height, width] = [within(bottom ?? 0, 0, rows) - row, within(right ?? 0, 0, columns) - column];
  return height < 2 || width < 2 ? undefined : { row, column, height, width };
}

/** Moved, or with its lower right corner moved, by steps of a twentieth of the image; the middle half if there was none. */
export function stepped(region: Region | undefined, [down, right]: [number, number], size: Size, corner: boolean): Region {
  const { rows, columns } = size;
  const half = (edge: number) => Math.max(1, Math.round(edge / 2));
  if (!region) return { row: Math.floor(rows / 4), column: Math.floor(columns / 4), height: half(rows), width: half(columns) };
  const [by, along] = [down * Math.max(1, Math.round(rows / 20)), right * Math.max(1, Math.round(columns / 20))];
  const { row, column, height, width } = region;
  if (corner) return { row, column, height: within(height + by, 1, rows - row), width: within(width + along, 1, columns - column) };
  return { row: within(row + by, 0, rows - height), column: within(column + along, 0, columns - width), height, width };
}

/** As the service takes it; undefined for the whole image. */
export const asField = (region: Region | undefined): string | undefined =>
  region && [region.row, region.column, region.height, region.width].join(',');
