/** What each capsule sees: layers, lengths, atoms, one point's poses and couplings; an atom that is moved. */
import {
  capsuleNames, chooseSlice, type Detail, handed, type Kind, type Layer, modelNamed, type Picked, source,
} from './catalog.js';
import { ARROWS, fill, find, make, put } from './dom.js';
import { bars, couplingTable, type Maps, npz, part, pictures, RISING, SIGNED, Strip } from './pictures.js';
import { json, picture, post } from './service.js';
import { Work } from './work.js';

const REACH = 0.25; // of LaLonde's figure
const COARSE_THEN_FINE = [5, 21]; // odd: the middle one is the reconstruction itself

interface Point { pose: number[][]; lengths: number[]; next_layer: string | null; couplings: number[][] | null }
interface Statistics { layers: Record<string, { size: [rows: number, columns: number]; mean_length: number[] }> }

export function capsulesView(view: HTMLElement): void {
  const work = new Work(find('aside .work', view));
  const [select, slider, pick] = [find('select.model', view), find('.slices input', view), find('.pick', view)];
  const move = moveView(find('form', view));
  let [input, taken]: (Picked | undefined)[] = []; // what is looked into, what another view has looked at
  let inputKind: Kind = 'image';
  let [slice, row, column]: (number | undefined)[] = [];
  let [rows, columns] = [0, 0];
  let detail: Detail;
  let layer: Layer;
  let capsule = 1; // the first that is no background

  const kind = (): Kind => (select.value && modelNamed(select.value).task === 'synthesis' ? 'labels' : 'image');
  const features = (format: string, more: object, signal: AbortSignal) =>
    post(`v1/models/${select.value}/features?format=${format}`, { [inputKind]: input?.content, slice, ...more }, signal);

  const load = (picked: Picked, index?: number) => work.run(`Looking into ${select.value}`, async (signal) => {
    [input, inputKind, row, column] = [picked, kind(), undefined, undefined];
    find('.inside', view).hidden = true;
    put(view, { network: [] });
    const image = await post('v1/images?format=png', { image: picked.content, kind: inputKind, slice: index }, signal);
    slice = chooseSlice(view, image, index);
    find('.pick img', view).src = await picture(Promise.resolve(image));
    detail = await json<Detail>(`v1/models/${select.value}`);
    const { layers }: Statistics = await (await features('json', {}, signal)).json();
    [rows, columns] = layers[detail.layers[0]?.name ?? '']?.size ?? [0, 0];
    put(view, { network: network(layers) });
    find('.here', view).hidden = find('.pick i', view).hidden = true;
    find('.inside', view).hidden = false;
    move(detail, picked.content, slice);
    await open(detail.layers.at(-1) as Layer, signal);
  });

  /** The layers as boxes: a column a scale, lower where an image has fewer positions. */
  const network = (layers: Statistics['layers']) => {
    let [column, row] = [0, 0];
    return detail.layers.map((one, i) => {
      const { name, types, atoms, stride } = one;
      if (stride !== detail.layers[i - 1]?.stride) [column, row] = [column + 1, 2 * Math.log2(stride)];
      row += 1;
      const mean = layers[name]?.mean_length.map((length) => length.toFixed(2)).join(', ');
      return make('button', {
        type: 'button', value: name, style: `grid-area: ${row} / ${column}`,
        title: `${types} capsule types of ${atoms} atoms; mean length ${mean}`,
        onclick: () => void work.run(`Reading ${name}`, (signal) => open(one, signal)),
      }, make('strong', {}, name), `${types} × ${atoms}`, make('br'), stride === 1 ? 'full size' : `1/${stride} size`);
    });
  };

  /** A layer: its capsules' lengths, and what is at the point. */
  const open = async (one: Layer, signal: AbortSignal) => {
    layer = one;
    for (const box of view.querySelectorAll<HTMLButtonElement>('.network button')) box.ariaPressed = `${box.value === one.name}`;
    const found = await npz(await (await features('npz', { layer: one.name }, signal)).bytes());
    const lengths = found[`lengths/${one.name}`] as Maps;
    const tiles = pictures(lengths, capsuleNames(detail, one), RISING).map((shown, j) =>
      make('button', { type: 'button', className: 'tile', onclick: () => show(j) }, ...shown));
    const show = (chosen: number) => {
      capsule = chosen;
      tiles.forEach((tile, j) => { tile.ariaPressed = `${j === capsule}`; });
      const values = part(found[one.name] as Maps, capsule * one.atoms, one.atoms);
      const atoms = pictures(values, Object.keys(Array(one.atoms).fill(0)), SIGNED);
      const most = values.most.toFixed(2);
      put(view, {
        capsule: `Atoms of ${capsuleNames(detail, one)[capsule]}, -${most} to ${most}`,
        atoms: atoms.map((atom) => make('figure', { className: 'tile' }, ...atom)),
      });
    };
    put(view, { layer: `${one.name}: capsule lengths, 0 to ${lengths.most.toFixed(2)}`, lengths: tiles });
    show(capsule < one.types ? capsule : 0);
    await look(signal);
  };

  /** One point: the poses there, and where the votes go. */
  const look = async (signal: AbortSignal) => {
    if (row === undefined) return;
    const found: Point = await (await features('json', { layer: layer.name, row, column }, signal)).json();
    const above = detail.layers.find(({ name }) => name === found.next_layer);
    const names = capsuleNames(detail, layer);
    put(view, {
      spot: `${layer.name} at row ${row}, column ${column}`, poses: bars(found.pose, found.lengths, names),
      towards: above ? `Coupling coefficients towards ${above.name}` : 'This is the last layer: its votes go nowhere.',
      couplings: above && found.couplings ? couplingTable(found.couplings, names, capsuleNames(detail, above)) : [],
    });
    find('.here', view).hidden = false;
  };

  /** Look at a point, given in rows and columns. */
  const choose = (down: number, right: number) => {
    if (!input || !layer) return;
    row = Math.max(0, Math.min(rows - 1, Math.floor(down)));
    column = Math.max(0, Math.min(columns - 1, Math.floor(right)));
    const style = `top: ${(100 * (row + 0.5)) / rows}%; left: ${(100 * (column + 0.5)) / columns}%`;
    Object.assign(find('.pick i', view), { hidden: false, style });
    put(view, { point: `Row ${row}, column ${column}` });
    void work.run('Reading the capsules there', look);
  };
  pick.onclick = ({ offsetX, offsetY }) =>
    choose((offsetY / pick.clientHeight) * rows, (offsetX / pick.clientWidth) * columns);
  pick.onkeydown = (event) => {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    choose((row ?? rows / 2) + step[0], (column ?? columns / 2) + step[1]);
  };

  const list = source(view, work, kind, (picked) => void load(picked));
  /** Look into what another view or model has looked at, where it is of the right kind. */
  const begin = (kept?: Picked) => {
    list();
    const next = kept ?? handed[kind()];
    if (next) void load(next);
  };
  select.onchange = () => begin(inputKind === kind() ? input : undefined);
  slider.onchange = () => input && void load(input, slider.valueAsNumber);
  view.addEventListener('shown', () => {
    if (taken !== handed.image) begin();
    taken = handed.image;
  });
}

/** Shifts from -REACH to REACH, as the service takes them. */
export const deltas = (count: number): string =>
  Array.from({ length: count }, (_, i) => (REACH * ((2 * i) / (count - 1) - 1)).toFixed(4)).join(',');

/** Moves one atom of the class capsules; what is returned shows a model's for an image, or its slice. */
function moveView(form: HTMLFormElement): (model: Detail, image: Blob, slice?: number) => void {
  const work = new Work(find('.work', form));
  const [slider, capsule, atom] = [find('input.delta', form), find('select.class', form), find('select.atom', form)];
  const strip = new Strip(slider, () => {
    put(form, { by: slider.valueAsNumber.toFixed(2) });
    for (const canvas of form.querySelectorAll('canvas')) strip.draw(canvas, canvas.className === 'still' ? 0.5 : undefined);
  });
  return (model, image, slice) => {
    form.hidden = model.task !== 'segmentation';
    if (form.hidden) return;
    const last = model.layers.at(-1) as Layer;
    fill(capsule, capsuleNames(model, last));
    fill(atom, Object.keys(Array(last.atoms).fill(0)));
    if (last.types > 1) capsule.selectedIndex = 1; // no background
    const compute = () => work.run('Reconstructing', (signal, say) => strip.load(COARSE_THEN_FINE, (count) => {
      say(`${count} reconstructions`);
      const fields = { image, slice, capsule: capsule.selectedIndex, atom: atom.value, deltas: deltas(count) };
      return post(`v1/models/${model.name}/manipulate?format=png`, fields, signal);
    }));
    capsule.onchange = atom.onchange = compute;
    void compute();
  };
}
