/** From a label map to images: seeds, and what lies between two of them. */
import { modelNamed, modelSelect, type Picked } from './catalog.js';
import { find, make, save } from './dom.js';
import { handed } from './handed.js';
import { Paint } from './paint.js';
import { post } from './service.js';
import { source } from './source.js';
import { drawCell, Strip } from './strip.js';
import { Work } from './work.js';

const SEEDS = 6;
const COARSE_THEN_FINE = [5, 17];
const BLANK = 128;

/** The label map as it came, and its slice, or what was painted. */
interface Labels { whole: Picked; slice: Blob }

export async function synthesizeView(view: HTMLElement): Promise<Paint> {
  const work = new Work(find('.work', view));
  const select = modelSelect(view, 'synthesis');
  const seed = find<HTMLInputElement>('.seed', view);
  const position = find<HTMLInputElement>('.position', view);
  const slices = find<HTMLInputElement>('.slices input', view);
  const between = find<HTMLCanvasElement>('.between', view);
  const strip = new Strip();
  let labels: Labels | undefined;
  let ends: [number, number] = [1, 2];

  const paint = await Paint.on(find('.paint', view), find('.brush', view), (painted) => {
    if (!labels) return;
    labels = { slice: painted, whole: { ...labels.whole, content: painted, name: 'painted.nii' } };
    void synthesize();
  });

  const draw = () => {
    const at = strip.draw(between, Number(position.value));
    if (at < 0) return;
    const share = at / (strip.count - 1);
    const where = share === 0 ? `seed ${ends[0]}` : share === 1 ? `seed ${ends[1]}` : `${Math.round(100 * share)} % of the way`;
    find('.where', view).textContent = `Synthetic: ${where}`;
  };

  /** The images between the two ends: a few at once, then finer ones. */
  const interpolate = async (signal: AbortSignal, say: (text: string) => void) => {
    const [from, to] = ends;
    find('.from', view).textContent = `seed ${from}`;
    find('.to', view).textContent = `seed ${to}`;
    position.disabled = true;
    find('.frames', view).textContent = '';
    await strip.load(async (steps, stop) => {
      say(`${steps} images from seed ${from} to ${to}`);
      const form = { labels: labels?.slice, seed: from, to_seed: to, steps };
      return (await post(`v1/models/${select.value}/interpolate?format=png`, form, stop)).blob();
    }, COARSE_THEN_FINE, signal, () => {
      position.disabled = false;
      for (const button of view.querySelectorAll<HTMLButtonElement>('.actions button')) button.disabled = false;
      find('.frames', view).textContent = `${strip.count} images lie under the slider.`;
      draw();
    });
  };

  const choose = (end: 0 | 1, value: number) => {
    ends = end ? [ends[0], value] : [value, ends[1]];
    mark(view, ends);
    void work.run('Synthesizing', interpolate);
  };

  const synthesize = () => work.run(`Synthesizing ${SEEDS} images`, async (signal, say) => {
    const first = Number(seed.value) || 0;
    ends = [first, first + 1];
    const form = { labels: labels?.slice, seed: first, count: SEEDS };
    const answer = await post(`v1/models/${select.value}/synthesize?format=png`, form, signal);
    const sheet = await createImageBitmap(await answer.blob());
    find('.gallery', view).replaceChildren(...Array.from({ length: SEEDS }, (_, i) => tile(sheet, i, first + i, choose)));
    sheet.close();
    mark(view, ends);
    await interpolate(signal, say);
  });

  /** Show a label map, of a volume one slice, and begin. */
  const load = async (whole: Picked, index?: number) => {
    const { original } = whole;
    const done = await work.run(`Reading ${whole.name}`, async (signal) => {
      const ask = (more: object, content = whole.content, kind = 'labels') =>
        post('v1/images?format=nifti', { image: content, kind, ...more }, signal);
      let answer = await ask({});
      const count = Number(answer.headers.get('Caps-Med-Slices'));
      const geometry = answer.headers.get('Caps-Med-Geometry') === 'yes';
      const at = index ?? Math.floor(count / 2);
      find('.slices', view).hidden = count < 2;
      Object.assign(slices, { max: `${count - 1}`, value: `${at}` });
      find('.slices output', view).textContent = `${at + 1} of ${count}`;
      if (count > 1) answer = await ask({ slice: at });
      const nifti = await answer.blob();
      labels = { whole, slice: count > 1 ? nifti : whole.content };
      await paint.load(new Uint8Array(await nifti.arrayBuffer()), modelNamed(select.value), geometry);
      find('.empty', view).hidden = true;
      find('.original', view).hidden = !original;
      if (original) {
        const picture = await post('v1/images?format=png', { image: original, slice: count > 1 ? at : undefined }, signal);
        find<HTMLImageElement>('.original img', view).src = URL.createObjectURL(await picture.blob());
      }
    });
    if (done) await synthesize();
  };

  source(view, work, () => 'labels', (picked) => void load(picked));
  const made = find<HTMLButtonElement>('.made', view);
  document.addEventListener('handed', () => { made.disabled = !handed.labels; });
  made.addEventListener('click', () => handed.labels && void load(handed.labels));
  find('#to-synthesize').addEventListener('click', () => made.click());
  find('.blank', view).addEventListener('click', () =>
    void load({ content: new Blob([new Uint8Array(Paint.blank(BLANK))]), name: 'painted.nii' }));
  slices.addEventListener('change', () => labels && void load(labels.whole, Number(slices.value)));
  seed.addEventListener('change', () => labels && void synthesize());
  select.addEventListener('change', () => {
    if (!labels) return;
    paint.colors(modelNamed(select.value));
    void synthesize();
  });
  position.addEventListener('input', draw);
  find('.picture', view).addEventListener('click', () =>
    between.toBlob((picture) => picture && save(picture, 'synthetic.png')));
  find('.save', view).addEventListener('click', () => void work.run('Synthesizing all of it', async (signal) => {
    const form = { labels: labels?.whole.content, seed: Number(seed.value) || 0, count: SEEDS };
    const answer = await post(`v1/models/${select.value}/synthesize?format=zip`, form, signal);
    save(await answer.blob(), 'synthetic.zip');
  }));
  return paint;
}

/** One seed's image, and what to use it for. */
function tile(sheet: ImageBitmap, at: number, seed: number, choose: (end: 0 | 1, seed: number) => void): HTMLElement {
  const canvas = make('canvas');
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', `Seed ${seed}`);
  drawCell(canvas, sheet, at, SEEDS);
  const button = (end: 0 | 1, text: string) => {
    const made = make('button', { type: 'button', value: `${seed}`, onclick: () => choose(end, seed) }, text);
    made.dataset.end = `${end}`;
    made.setAttribute('aria-label', `${text} seed ${seed}`);
    return made;
  };
  return make('figure', {}, canvas, make('figcaption', {}, `${seed}`, button(0, 'from'), button(1, 'to')));
}

/** Show which seeds are the two ends. */
function mark(view: HTMLElement, ends: [number, number]): void {
  for (const button of view.querySelectorAll<HTMLButtonElement>('.gallery button')) {
    const chosen = Number(button.value) === ends[Number(button.dataset.end) as 0 | 1];
    button.setAttribute('aria-pressed', `${chosen}`);
  }
}
