/** From a label map to images: seeds, and what lies between two of them. */
import { find, make, put, save } from './dom.js';
import { modelNamed } from './models.js';
import { Paint } from './paint.js';
import { picture, post } from './service.js';
import { chooseSlice, handed, hasGeometry, type Picked, source } from './source.js';
import { drawCell, Strip } from './strip.js';
import { type Say, Work } from './work.js';

const SEEDS = 6;
const COARSE_THEN_FINE = [5, 17];
const BLANK = 128;

export async function synthesizeView(view: HTMLElement): Promise<Paint> {
  const work = new Work(find('.work', view));
  const [select, seed, made] = [find('select.model', view), find('input.seed', view), find('button.made', view)];
  const between = find('canvas.between', view);
  /** The label map as it came, and its slice, or what was painted. */
  let labels: { whole: Picked; slice: Blob } | undefined;
  let ends: [from: number, to: number] = [1, 2];

  const paint = new Paint(find('fieldset', view), (slice) => {
    if (!labels) return;
    labels = { slice, whole: { ...labels.whole, content: slice, name: 'painted.nii' } };
    void work.run('Synthesizing', synthesize);
  });
  await paint.attachToCanvas(find('canvas.paint', view));
  find('canvas.paint', view).onkeydown = (event) => paint.key(event);

  const ask = (what: string, fields: object, signal: AbortSignal): Promise<Response> =>
    post(`v1/models/${select.value}/${what}`, { labels: labels?.slice, seed: seed.value, ...fields }, signal);

  const strip = new Strip(find('input.position', view), () => {
    for (const button of view.querySelectorAll<HTMLButtonElement>('.actions button')) button.disabled = false;
    const share = strip.draw(between) / (strip.count - 1);
    const where = share % 1 ? `${Math.round(100 * share)} % of the way` : `seed ${ends[share]}`;
    put(view, { where: `Synthetic: ${where}`, frames: `${strip.count} images lie under the slider.` });
  });

  /** The images between the two ends. */
  const interpolate = async (signal: AbortSignal, say: Say) => {
    const [from, to] = ends;
    for (const button of view.querySelectorAll<HTMLButtonElement>('.gallery button')) {
      button.ariaPressed = `${Number(button.value) === (button.className === 'from' ? from : to)}`;
    }
    put(view, { ends: `seed ${from} and seed ${to}`, frames: '' });
    await strip.load(COARSE_THEN_FINE, (steps) => {
      say(`${steps} images from seed ${from} to ${to}`);
      return ask('interpolate?format=png', { seed: from, to_seed: to, steps }, signal);
    });
  };

  /** One seed's image, and what to use it for. */
  const tile = (sheet: ImageBitmap, i: number) => {
    const value = `${seed.valueAsNumber + i}`;
    const canvas = make('canvas', { role: 'img', ariaLabel: `Seed ${value}` });
    drawCell(canvas, sheet, i, SEEDS);
    const buttons = ['from', 'to'].map((end) => make('button', {
      type: 'button', className: end, value, ariaLabel: `${end} seed ${value}`,
      onclick: () => {
        ends = end === 'from' ? [Number(value), ends[1]] : [ends[0], Number(value)];
        void work.run('Synthesizing', interpolate);
      },
    }, end));
    return make('figure', {}, canvas, make('figcaption', {}, value, ...buttons));
  };

  const synthesize = async (signal: AbortSignal, say: Say) => {
    say(`Synthesizing ${SEEDS} images`);
    const sheet = await createImageBitmap(await (await ask('synthesize?format=png', { count: SEEDS }, signal)).blob());
    ends = [seed.valueAsNumber, seed.valueAsNumber + 1];
    put(view, { gallery: Array.from({ length: SEEDS }, (_, i) => tile(sheet, i)) });
    await interpolate(signal, say);
  };

  /** Show a label map, of a volume one slice, and begin. */
  const load = (whole: Picked, index?: number) => work.run(`Reading ${whole.name}`, async (signal, say) => {
    const read = (more: object) =>
      post('v1/images?format=nifti', { image: whole.content, kind: 'labels', ...more }, signal);
    let answer = await read({});
    const slice = chooseSlice(view, answer, index);
    const geometry = hasGeometry(answer);
    if (slice !== undefined) answer = await read({ slice });
    const nifti = await answer.blob();
    labels = { whole, slice: slice === undefined ? whole.content : nifti };
    await paint.load(new Uint8Array(await nifti.arrayBuffer()), modelNamed(select.value), geometry);
    find('.original', view).hidden = !whole.original;
    if (whole.original) {
      find('.original img', view).src = await picture(post('v1/images?format=png', { image: whole.original, slice }, signal));
    }
    await synthesize(signal, say);
  });

  source(view, work, () => 'labels', (picked) => void load(picked));
  view.addEventListener('shown', () => { made.disabled = !handed.labels; });
  made.onclick = () => handed.labels && void load(handed.labels);
  find('#to-synthesize').onclick = made.onclick;
  find('.blank', view).onclick = () =>
    void load({ content: new Blob([new Uint8Array(Paint.blank(BLANK))]), name: 'painted.nii' });
  find('.slices input', view).onchange = () => labels && void load(labels.whole, find('.slices input', view).valueAsNumber);
  seed.onchange = () => labels && seed.reportValidity() && void work.run('Synthesizing', synthesize);
  select.onchange = () => {
    if (!labels) return;
    paint.colors(modelNamed(select.value));
    void work.run('Synthesizing', synthesize);
  };
  find('.picture', view).onclick = () => between.toBlob((shown) => shown && save(shown, 'synthetic.png'));
  find('.save', view).onclick = () => void work.run('Synthesizing all of it', async (signal) =>
    save(await (await ask('synthesize?format=zip', { labels: labels?.whole.content, count: SEEDS }, signal)).blob(), 'synthetic.zip'));
  return paint;
}
