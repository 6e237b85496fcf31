/** What each capsule sees: layers, lengths, atoms, one point's poses and couplings. */
import { ARROWS, find, make, put } from './dom.js';
import { bars, couplingTable, type Maps, npz, part, pictures, RISING, SIGNED } from './maps.js';
import { capsuleNames, type Detail, type Layer, modelNamed } from './models.js';
import { moveView } from './move.js';
import { json, picture, post } from './service.js';
import { chooseSlice, handed, type Kind, type Picked, source } from './source.js';
import { Work } from './work.js';

interface Point { pose: number[][]; lengths: number[]; next_layer: string | null; couplings: number[][] | null }
interface Statistics { layers: Record<string, { size: [rows: number, columns: number]; mean_length: number[] }> }

export function capsulesView(view: HTMLElement): void {
  const work = new Work(find('aside .work', view));
  const [select, pick] = [find('select.model', view), find('.pick', view)];
  const move = moveView(find('form', view));
  const arrays = new Map<string, Record<string, Maps>>();
  let input: Picked | undefined;
  let taken: Picked | undefined; // from another view
  let inputKind: Kind = 'image';
  let slice: number | undefined;
  let detail: Detail;
  let layer: Layer;
  let size = [0, 0];
  let point: [row: number, column: number] | undefined;
  let capsule = 1; // the first that is no background

  const kind = (): Kind => (select.value && modelNamed(select.value).task === 'synthesis' ? 'labels' : 'image');
  const features = (format: string, more: object, signal: AbortSignal) =>
    post(`v1/models/${select.value}/features?format=${format}`, { [inputKind]: input?.content, slice, ...more }, signal);
  const open = (one: Layer) => void work.run(`Reading ${one.name}`, (signal) => look(one, signal));

  const load = (picked: Picked, index?: number) => work.run(`Looking into ${select.value}`, async (signal) => {
    [input, inputKind, point] = [picked, kind(), undefined];
    arrays.clear();
    find('.inside', view).hidden = true;
    put(view, { network: [] });
    const image = await post('v1/images?format=png', { image: picked.content, kind: inputKind, slice: index }, signal);
    slice = chooseSlice(view, image, index);
    find('.pick img', view).src = await picture(Promise.resolve(image));
    detail = await json<Detail>(`v1/models/${select.value}`);
    const { layers }: Statistics = await (await features('json', {}, signal)).json();
    size = layers[detail.layers[0]?.name ?? '']?.size ?? [];
    put(view, { network: network(detail, layers) });
    find('.inside', view).hidden = false;
    find('.here', view).hidden = find('.pick i', view).hidden = true;
    move(detail, picked.content, slice);
    await look(detail.layers.at(-1) as Layer, signal);
  });

  /** The layers as boxes: a column a scale, lower where an image has fewer positions. */
  const network = (model: Detail, layers: Statistics['layers']) => {
    let [column, row] = [0, 0];
    return model.layers.map((one, i) => {
      if (one.stride !== model.layers[i - 1]?.stride) [column, row] = [column + 1, 2 * Math.log2(one.stride)];
      row += 1;
      const mean = layers[one.name]?.mean_length.map((length) => length.toFixed(2)).join(', ');
      return make('button', {
        type: 'button', value: one.name, style: `grid-area: ${row} / ${column}`, onclick: () => open(one),
        title: `${one.types} capsule types of ${one.atoms} atoms; mean length ${mean}`,
      }, make('strong', {}, one.name), `${one.types} × ${one.atoms}`, make('br'),
      one.stride === 1 ? 'full size' : `1/${one.stride} size`);
    });
  };

  /** A layer: its capsules' lengths, and the chosen point's poses there. */
  const look = async (one: Layer, signal: AbortSignal) => {
    layer = one;
    for (const box of view.querySelectorAll<HTMLButtonElement>('.network button')) box.ariaPressed = `${box.value === one.name}`;
    const found = arrays.get(one.name)
      ?? await npz(new Uint8Array(await (await features('npz', { layer: one.name }, signal)).arrayBuffer()));
    arrays.set(one.name, found);
    const lengths = found[`lengths/${one.name}`] as Maps;
    const show = (chosen: number) => {
      capsule = chosen;
      tiles.forEach((tile, j) => { tile.ariaPressed = `${j === capsule}`; });
      const values = part(found[one.name] as Maps, capsule * one.atoms, one.atoms);
      const atoms = pictures(values, Array.from({ length: one.atoms }, (_, a) => `${a}`), SIGNED);
      const most = values.most.toFixed(2);
      put(view, {
        capsule: `Atoms of ${capsuleNames(detail, one)[capsule]}, -${most} to ${most}`,
        atoms: atoms.map((atom) => make('figure', { className: 'tile' }, ...atom)),
      });
    };
    const tiles = pictures(lengths, capsuleNames(detail, one), RISING).map((shown, j) =>
      make('button', { type: 'button', className: 'tile', onclick: () => show(j) }, ...shown));
    put(view, { layer: `${one.name}: capsule lengths, 0 to ${lengths.most.toFixed(2)}`, lengths: tiles });
    show(capsule < one.types ? capsule : 0);
    if (point) await here(one, point, signal);
  };

  /** One point: the poses there, and where the votes go. */
  const here = async (one: Layer, [row, column]: [number, number], signal: AbortSignal) => {
    const found: Point = await (await features('json', { layer: one.name, row, column }, signal)).json();
    const above = detail.layers.find(({ name }) => name === found.next_layer);
    const names = capsuleNames(detail, one);
    put(view, {
      spot: `${one.name} at row ${row}, column ${column}`,
      poses: bars(found.pose, found.lengths, names),
      towards: above ? `Coupling coefficients towards ${above.name}` : 'This is the last layer: its votes go nowhere.',
      couplings: above && found.couplings ? couplingTable(found.couplings, names, capsuleNames(detail, above)) : [],
    });
    find('.here', view).hidden = false;
  };

  const choose = (...place: [row: number, column: number]) => {
    if (!input || !layer) return;
    const [row, column] = place.map((at, k) => Math.max(0, Math.min((size[k] ?? 0) - 1, Math.floor(at)))) as typeof place;
    point = [row, column];
    const share = (k: 0 | 1) => `${(100 * ((k ? column : row) + 0.5)) / (size[k] ?? 1)}%`;
    Object.assign(find('.pick i', view), { hidden: false, style: `top: ${share(0)}; left: ${share(1)}` });
    put(view, { point: `Row ${row}, column ${column}` });
    open(layer);
  };

  pick.onclick = ({ offsetX, offsetY }) =>
    choose((offsetY / pick.clientHeight) * (size[0] ?? 0), (offsetX / pick.clientWidth) * (size[1] ?? 0));
  pick.onkeydown = (event) => {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    const [row, column] = point ?? size.map((length) => length / 2);
    choose((row ?? 0) + step[0], (column ?? 0) + step[1]);
  };
  const list = source(view, work, kind, (picked) => void load(picked));
  /** Look into what another view or model has looked at, where it is of the right kind. */
  const begin = (kept?: Picked) => {
    list();
    const next = kept ?? handed[kind()];
    if (next) void load(next);
  };
  select.onchange = () => begin(inputKind === kind() ? input : undefined);
  find('.slices input', view).onchange = ({ currentTarget }) =>
    input && void load(input, (currentTarget as HTMLInputElement).valueAsNumber);
  view.addEventListener('shown', () => {
    if (taken !== handed.image) begin();
    taken = handed.image;
  });
}
