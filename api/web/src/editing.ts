/** Corrections of a label map: what a brush, a fill and an interpolation do to its voxels, the first axis running fastest. */

export type Voxel = readonly [x: number, y: number, z: number];
/** An axis across which slices lie: 0 sagittal, 1 coronal, 2 axial ones. */
export type Normal = 0 | 1 | 2;
/** Whether a voxel may be changed, by its index. */
export type Allowed = (index: number) => boolean;

/** A label map that can be changed in place. */
export interface LabelMap { labels: Uint8Array; size: Voxel }

const anywhere: Allowed = () => true;
const steps = ([nx, ny]: Voxel): Voxel => [1, nx, nx * ny];
const inPlane = (normal: Normal): [across: number, up: number] => [0, 1, 2].filter((axis) => axis !== normal) as [number, number];
const indexOf = (at: Voxel, size: Voxel): number => at[0] + size[0] * (at[1] + size[1] * at[2]);
const inside = (at: readonly number[], size: Voxel): boolean => at.every((place, axis) => place >= 0 && place < (size[axis] as number));

/** Allow what has a value between two, both included, whichever is the larger one. */
export function between(values: ArrayLike<number>, one: number, other: number): Allowed {
  const [low, high] = [Math.min(one, other), Math.max(one, other)];
  return (index) => (values[index] as number) >= low && (values[index] as number) <= high;
}

/** The brighter half of a window, up to the brightest value there is; of few digits, but none of which the brightest is left out. */
export function brighter(low: number, high: number, brightest = high): [number, number] {
  const rounded = (value: number) => Number(value.toPrecision(4));
  return [rounded((low + high) / 2), Math.max(rounded(brightest), brightest)];
}

/** A round dot of `diameter` voxels in the slice across `normal`. */
export function dot({ labels, size }: LabelMap, center: Voxel, normal: Normal, diameter: number, label: number, allowed = anywhere): void {
  const [across, up] = inPlane(normal);
  const reach = Math.floor(diameter / 2);
  for (let i = -reach; i <= reach; i++) for (let j = -reach; j <= reach; j++) {
    const at = center.map((place, axis) => Math.round(place) + (axis === across ? i : axis === up ? j : 0));
    if (4 * (i * i + j * j) > diameter * diameter || !inside(at, size)) continue;
    const index = indexOf(at as unknown as Voxel, size);
    if (allowed(index)) labels[index] = label;
  }
}

/** The places from one voxel to another, less than a voxel apart. */
export function* line(from: Voxel, to: Voxel): Generator<Voxel> {
  const count = Math.max(1, ...from.map((start, axis) => Math.abs((to[axis] as number) - start)));
  for (let i = 0; i <= count; i++) yield from.map((start, axis) => start + ((to[axis] as number) - start) * (i / count)) as unknown as Voxel;
}

/**
 * Give a connected region another label: the voxels of the same label as `start` that touch it by their faces,
 * in the slice across `normal`, or in all slices if that is undefined. Says how many were changed.
 */
export function fill({ labels, size }: LabelMap, start: Voxel, normal: Normal | undefined, label: number, allowed = anywhere): number {
  const first = indexOf(start, size);
  const old = labels[first];
  if (!inside(start, size) || old === label || !allowed(first)) return 0;
  const axes = normal === undefined ? [0, 1, 2] : inPlane(normal);
  const strides = steps(size);
  const waiting = [first];
  labels[first] = label;
  let changed = 1;
  for (let index = waiting.pop(); index !== undefined; index = waiting.pop()) for (const axis of axes) {
    const stride = strides[axis] as number;
    const place = Math.floor(index / stride) % (size[axis] as number);
    for (const [by, fits] of [[-1, place > 0], [1, place < (size[axis] as number) - 1]] as const) {
      const next = index + by * stride;
      if (!fits || labels[next] !== old || !allowed(next)) continue;
      labels[next] = label;
      changed += 1;
      waiting.push(next);
    }
  }
  return changed;
}

/** Where a label is in a slice, row by row. */
interface Mask { on: Uint8Array; width: number; height: number }

/** The indices of a slice's voxels, row by row. */
function* sliceIndices(size: Voxel, normal: Normal, slice: number): Generator<number> {
  const [across, up] = inPlane(normal);
  const strides = steps(size);
  for (let row = 0; row < (size[up] as number); row++) for (let column = 0; column < (size[across] as number); column++) {
    yield slice * strides[normal] + row * (strides[up] as number) + column * (strides[across] as number);
  }
}

function maskOf({ labels, size }: LabelMap, normal: Normal, slice: number, label: number): Mask {
  const [across, up] = inPlane(normal);
  const on = Uint8Array.from(sliceIndices(size, normal, slice), (index) => Number(labels[index] === label));
  return { on, width: size[across] as number, height: size[up] as number };
}

/** The slices in which two label maps differ in the voxels of a label. */
export function changedSlices(now: LabelMap, before: Uint8Array, normal: Normal, label: number): number[] {
  const stride = steps(now.size)[normal];
  const changed = new Set<number>();
  now.labels.forEach((value, index) => {
    if ((value === label) !== (before[index] === label)) changed.add(Math.floor(index / stride) % now.size[normal]);
  });
  return [...changed].sort((a, b) => a - b);
}

/** The two of some slices between which a slice lies; if it is one of them, it and the nearest that leaves a gap. */
export function around(slices: readonly number[], slice: number): [number, number] | undefined {
  const gaps = slices.slice(1).map((high, i): [number, number] => [slices[i] as number, high]).filter(([low, high]) => high - low > 1);
  return gaps.find(([low, high]) => low < slice && slice < high) ?? gaps.find(([low, high]) => low === slice || high === slice);
}

/**
 * Shape-based interpolation (Raya and Udupa 1990): between two slices a label is where the signed distances to its
 * outlines in both, weighted by nearness, are below zero. Outlines without a common pixel are first moved towards each
 * other, along the line between their centroids. Says how many voxels were changed; `spacing`: of the voxels, in mm;
 * `nothing`: the label of what is no longer inside.
 */
export function interpolate(map: LabelMap, normal: Normal, [low, high]: [number, number], label: number, spacing: Voxel = [1, 1, 1], allowed = anywhere, nothing = 0): number {
  const { labels, size } = map;
  const [across, up] = inPlane(normal);
  const ends = [low, high].map((slice) => maskOf(map, normal, slice, label)) as [Mask, Mask];
  if (!ends.every(({ on }) => on.includes(1))) return 0;
  const [one, two] = ends.map((mask) => signedDistance(mask, spacing[across] as number, spacing[up] as number)) as [Float64Array, Float64Array];
  const apart = ends[0].on.some((on, i) => on && ends[1].on[i]) ? [0, 0] : offset(...ends);
  const { width, height } = ends[0];
  let changed = 0;
  for (let slice = low + 1; slice < high; slice++) {
    const share = (slice - low) / (high - low);
    const shifted = (distances: Float64Array, by: number, place: number): number => {
      const column = Math.min(width - 1, Math.max(0, (place % width) - Math.round(by * (apart[0] as number))));
      const row = Math.min(height - 1, Math.max(0, Math.floor(place / width) - Math.round(by * (apart[1] as number))));
      return distances[row * width + column] as number;
    };
    let place = 0;
    for (const index of sliceIndices(size, normal, slice)) {
      const within = (1 - share) * shifted(one, share, place) + share * shifted(two, share - 1, place) < 0;
      place += 1;
      const [old, now] = [labels[index], within ? label : nothing];
      if (within === (old === label) || old === now || !allowed(index)) continue;
      labels[index] = now;
      changed += 1;
    }
  }
  return changed;
}

/** Columns and rows from the centroid of one mask to that of another. */
function offset(one: Mask, two: Mask): [number, number] {
  const centroid = ({ on, width }: Mask) => {
    let [count, x, y] = [0, 0, 0];
    on.forEach((is, i) => { if (is) [count, x, y] = [count + 1, x + (i % width), y + Math.floor(i / width)]; });
    return [x / count, y / count] as const;
  };
  const [[x0, y0], [x1, y1]] = [centroid(one), centroid(two)];
  return [x1 - x0, y1 - y0];
}

/** The distance of each pixel to a mask's outline, below zero inside. */
export function signedDistance({ on, width, height }: Mask, across = 1, up = 1): Float64Array {
  const to = (wanted: number) => squaredDistances(on.map((is) => Number(is === wanted)), width, height, across, up);
  const [toInside, toOutside] = [to(1), to(0)];
  const half = Math.min(across, up) / 2; // the outline runs between the pixels
  return toInside.map((squared, i) => (on[i] ? half - Math.sqrt(toOutside[i] as number) : Math.sqrt(squared) - half));
}

/** Squared Euclidean distances to a mask (Felzenszwalb and Huttenlocher 2012): along the rows, then along the columns. */
function squaredDistances(on: Uint8Array, width: number, height: number, across: number, up: number): Float64Array {
  const far = (width * across + height * up) ** 2; // farther than any pixel
  const squared = Float64Array.from(on, (is) => (is ? 0 : far));
  for (let row = 0; row < height; row++) envelope(squared, row * width, 1, width, across);
  for (let column = 0; column < width; column++) envelope(squared, column, width, height, up);
  return squared;
}

/** The lower envelope of the parabolas that stand on `count` values, in place. */
function envelope(values: Float64Array, start: number, stride: number, count: number, spacing: number): void {
  const f = Float64Array.from({ length: count }, (_, i) => values[start + i * stride] as number);
  const of = (i: number) => (f[i] as number) + (i * spacing) ** 2;
  const roots = [0];
  const from = [-Infinity];
  for (let i = 1; i < count; i++) {
    const meets = (other: number) => (of(i) - of(other)) / (2 * spacing * (i - other));
    while (meets(roots.at(-1) as number) <= (from.at(-1) as number)) [roots, from].forEach((list) => { list.pop(); });
    from.push(meets(roots.at(-1) as number));
    roots.push(i);
  }
  for (let i = 0, k = 0; i < count; i++) {
    while ((from[k + 1] ?? Infinity) < i * spacing) k += 1;
    const root = roots[k] as number;
    values[start + i * stride] = ((i - root) * spacing) ** 2 + (f[root] as number);
  }
}
