/** What each capsule sees: layers, lengths, atoms, one point's poses and couplings. */
import { largest, npz, part, type Values } from './arrays.js';
import { allModels, type Detail, type Layer, modelSelect, type Picked } from './catalog.js';
import { find, make } from './dom.js';
import { handed } from './handed.js';
import { bars, couplingTable, tiles } from './maps.js';
import { moveView } from './move.js';
import { json, post } from './service.js';
import { source } from './source.js';
import { Work } from './work.js';

interface Point { pose: number[][]; lengths: number[]; next_layer: string | null; couplings: number[][] | null }
interface Statistics { layers: Record<string, { size: [number, number]; mean_length: number[] }> }

export function capsulesView(view: HTMLElement): void {
  const work = new Work(find('aside .work', view));
  const select = modelSelect(view);
  const slices = find<HTMLInputElement>('.slices input', view);
  const pick = find<HTMLCanvasElement>('.pick canvas', view);
  const move = moveView(find<HTMLFormElement>('.move', view));
  const arrays = new Map<string, Record<string, Values>>();
  let input: Picked | undefined;
  let inputKind = '';
  let detail: Detail | undefined;
  let layer: Layer | undefined;
  let size: [number, number] = [0, 0];
  let point: [row: number, column: number] | undefined;
  let capsule = 1; // the first that is no background

  const kind = (): 'labels' | 'image' =>
    (allModels().find((model) => model.name === select.value)?.task === 'synthesis' ? 'labels' : 'image');
  const slice = () => (find('.slices', view).hidden ? undefined : Number(slices.value));
  const features = (format: string, more: object, signal: AbortSignal) =>
    post(`v1/models/${select.value}/features?format=${format}`, { [kind()]: input?.content, slice: slice(), ...more }, signal);

  const load = (picked: Picked, index?: number) => work.run(`Looking into ${select.value}`, async (signal) => {
    [input, inputKind] = [picked, kind()];
    arrays.clear();
    find('.inside', view).hidden = true;
    find('.network', view).replaceChildren();
    point = undefined;
    const [answer, found] = await Promise.all([
      post('v1/images?format=png', { image: picked.content, kind: kind(), slice: index }, signal),
      json<Detail>(`v1/models/${select.value}`, signal)]);
    detail = found;
    const count = Number(answer.headers.get('Caps-Med-Slices'));
    const at = index ?? Math.floor(count / 2);
    find('.slices', view).hidden = count < 2;
    Object.assign(slices, { max: `${count - 1}`, value: `${at}` });
    find('.slices output', view).textContent = `${at + 1} of ${count}`;
    find<HTMLImageElement>('.pick img', view).src = URL.createObjectURL(await answer.blob());
    find('.empty', view).hidden = true;
    const statistics = (await (await features('json', {}, signal)).json()) as Statistics;
    size = statistics.layers[found.layers[0]?.name ?? '']?.size ?? [0, 0];
    Object.assign(pick, { width: size[1], height: size[0] });
    network(found, statistics);
    find('.inside', view).hidden = false;
    find('.here', view).hidden = true;
    move.show(found, picked, slice());
    await open(found.layers.at(-1) as Layer, signal);
  });

  /** The layers as boxes: a column a scale, lower where an image has fewer positions. */
  const network = (found: Detail, { layers }: Statistics) => {
    let [column, row] = [0, 0];
    find('.network', view).replaceChildren(...found.layers.map((one, i) => {
      const mean = layers[one.name]?.mean_length ?? [];
      const node = make('button', { type: 'button', value: one.name },
        make('strong', {}, one.name), make('span', {}, `${one.types} × ${one.atoms}`),
        make('span', {}, one.stride === 1 ? 'full size' : `1/${one.stride} size`));
      node.title = `${one.types} capsule types of ${one.atoms} atoms; mean length ${mean.map((m) => m.toFixed(2)).join(', ')}`;
      if (one.stride !== found.layers[i - 1]?.stride) [column, row] = [column + 1, 2 * Math.log2(one.stride)];
      row += 1;
      node.style.gridArea = `${row} / ${column}`;
      node.addEventListener('click', () => void work.run(`Reading ${one.name}`, (signal) => open(one, signal)));
      return node;
    }));
  };

  const names = (one: Layer): string[] => {
    const labels = Object.values(detail?.labels ?? {});
    const last = detail?.task === 'segmentation' && one === detail.layers.at(-1);
    return Array.from({ length: one.types }, (_, j) => {
      if (!last) return `type ${j}`;
      return (one.types === 1 ? labels[1] : labels[j]) ?? `type ${j}`;
    });
  };

  /** A layer: its capsules' lengths. */
  const open = async (one: Layer, signal: AbortSignal) => {
    layer = one;
    for (const node of view.querySelectorAll<HTMLButtonElement>('.network button')) {
      node.setAttribute('aria-pressed', `${node.value === one.name}`);
    }
    const found = arrays.get(one.name) ?? npz(new Uint8Array(await (await features('npz', { layer: one.name }, signal)).arrayBuffer()));
    arrays.set(one.name, found);
    const lengths = found[`lengths/${one.name}`] as Values;
    const most = largest(lengths.data);
    find('.layer', view).textContent = `${one.name}: capsule lengths, 0 to ${most.toFixed(2)}`;
    find('.lengths', view).replaceChildren(...tiles(lengths, names(one), most, false, (j) => {
      capsule = j;
      atoms(one);
    }));
    if (capsule >= one.types) capsule = 0;
    atoms(one);
    if (point) await look(signal);
  };

  /** A capsule: its atoms. */
  const atoms = (one: Layer) => {
    const values = part(arrays.get(one.name)?.[one.name] as Values, capsule);
    const most = largest(values.data);
    find('.capsule', view).textContent = `Atoms of ${names(one)[capsule]}, ${(-most).toFixed(2)} to ${most.toFixed(2)}`;
    find('.atoms', view).replaceChildren(...tiles(values, Array.from({ length: one.atoms }, (_, a) => `${a}`), most, true));
    find('.lengths', view).querySelectorAll('button').forEach((tile, j) => { tile.setAttribute('aria-pressed', `${j === capsule}`); });
  };

  /** The chosen point: poses there, and where the votes go. */
  const look = async (signal: AbortSignal) => {
    if (!point || !layer) return;
    const [row, column] = point;
    const found = (await (await features('json', { layer: layer.name, row, column }, signal)).json()) as Point;
    const above = detail?.layers.find((one) => one.name === found.next_layer);
    find('.spot', view).textContent = `${layer.name} at row ${row}, column ${column}`;
    find('.poses', view).replaceChildren(...bars(found.pose, found.lengths, names(layer)));
    find('.couplings', view).replaceChildren(...(found.couplings && above
      ? [make('h3', {}, `Coupling coefficients towards ${above.name}`), couplingTable(found.couplings, names(layer), names(above))]
      : [make('p', { className: 'note' }, 'This is the last layer: its votes go nowhere.')]));
    find('.here', view).hidden = false;
  };

  const choose = (row: number, column: number) => {
    if (!input || !layer) return;
    point = [Math.min(size[0] - 1, Math.max(0, row)), Math.min(size[1] - 1, Math.max(0, column))];
    const context = pick.getContext('2d');
    if (!context) return;
    context.clearRect(0, 0, pick.width, pick.height);
    context.strokeStyle = '#5cc4bd';
    context.lineWidth = Math.max(1, size[1] / 120);
    context.beginPath();
    context.arc(point[1] + 0.5, point[0] + 0.5, size[1] / 40, 0, 7);
    context.stroke();
    find('.point', view).textContent = `Row ${point[0]}, column ${point[1]}`;
    void work.run('Reading the capsules there', (signal) => open(layer as Layer, signal));
  };

  pick.addEventListener('click', (event) => choose(
    Math.floor((event.offsetY / pick.clientHeight) * size[0]), Math.floor((event.offsetX / pick.clientWidth) * size[1])));
  pick.addEventListener('keydown', (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const [row, column] = point ?? [size[0] >> 1, size[1] >> 1];
    choose(row + (step[0] ?? 0), column + (step[1] ?? 0));
  });
  const samples = source(view, work, kind, (picked) => void load(picked));
  /** Look into what another view or model has looked at, where it is of the right kind. */
  const begin = () => {
    samples.refresh();
    const made = kind() === 'labels' ? handed.labels : handed.image;
    const next = inputKind === kind() ? (input ?? made) : made;
    if (next) void load(next);
  };
  select.addEventListener('change', begin);
  slices.addEventListener('change', () => input && void load(input, Number(slices.value)));
  document.addEventListener('models', samples.refresh);
  document.addEventListener('handed', () => { input = undefined; });
  view.addEventListener('shown', () => !input && begin());
}
