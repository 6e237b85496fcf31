/** Two label maps of one image, voxel by voxel. */
type Names = Record<string, string>;

export const ONLY_FIRST = 1;
export const ONLY_SECOND = 2;
export const OTHERWISE = 3;

export interface Comparison {
  /** Where they differ: labelled by the first only, by the second only, or otherwise by both. */
  map: Uint8Array;
  /** Of each label that both know: twice what they share over the sum of both; undefined where neither has it. */
  dice: [name: string, dice: number | undefined][];
  /** Voxels that differ, as a share of all and of those that either labels. */
  ofAll: number;
  ofLabelled: number;
}

/** The first's id of each of the second's: that of the same name, or the only label of both; others stay apart. */
export function translation(first: Names, second: Names): Map<number, number> {
  const labels = (names: Names) => Object.entries(names).filter(([id]) => id !== '0').map(([id, name]) => [Number(id), name.trim().toLowerCase()] as const);
  const [own, other] = [labels(first), labels(second)];
  const alone = own.length === 1 && other.length === 1;
  const found = other.map(([id, name]) => [id, (alone ? own[0] : own.find(([, one]) => one === name))?.[0] ?? 1000 + id] as const);
  return new Map([[0, 0], ...found]);
}

/** Which of the second's ids are hidden where these of the first are: those of the same meaning. */
export const alsoHidden = (hidden: ReadonlySet<number>, first: Names, second: Names): Set<number> =>
  new Set([...translation(first, second)].flatMap(([id, own]) => (hidden.has(own) ? [id] : [])));

/** Compare the label maps `a` and `b`, whose labels are called `first` and `second`. */
export function compare(a: ArrayLike<number>, b: ArrayLike<number>, first: Names, second: Names): Comparison {
  if (a.length !== b.length) throw new Error(`label maps of ${a.length} and ${b.length} voxels cannot be compared`);
  const same = translation(first, second);
  const sizes = new Map<number, { either: number; both: number }>();
  const at = (id: number) => {
    const size = sizes.get(id) ?? { either: 0, both: 0 };
    sizes.set(id, size);
    return size;
  };
  const map = new Uint8Array(a.length);
  let [differing, labelled] = [0, 0];
  for (let i = 0; i < a.length; i++) {
    const [one, two] = [a[i] as number, same.get(b[i] as number) ?? 1000 + (b[i] as number)];
    if (!one && !two) continue;
    labelled++;
    at(one).either++;
    at(two).either++;
    if (one === two) at(one).both++;
    else {
      map[i] = !two ? ONLY_FIRST : !one ? ONLY_SECOND : OTHERWISE;
      differing++;
    }
  }
  const common = [...same.values()].filter((id) => id && first[id] !== undefined);
  const dice = common.map((id): [string, number | undefined] => {
    const { either = 0, both = 0 } = sizes.get(id) ?? {};
    return [first[id] as string, either ? (2 * both) / either : undefined];
  });
  return { map, dice, ofAll: differing / (a.length || 1), ofLabelled: differing / (labelled || 1) };
}
