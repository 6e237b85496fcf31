/** From a label map to images: seeds, and what lies between two of them. */
import { chooseSlice, handed, hasGeometry, modelNamed, type Picked, source } from './catalog.js';
import { find, make, put, save } from './dom.js';
import { blank, Paint } from './paint.js';
import { drawCell, Strip } from './pictures.js';
import { picture, post } from './service.js';
import { type Say, Work } from './work.js';

const SEEDS = 6;
const COARSE_THEN_FINE = [5, 17];
const BLANK = 128;

export async function synthesizeView(view: HTMLElement): Promise<Paint> {
  const work = new Work(find('.work', view));
  const [select, seed, slider] = [find('select.model', view), find('input.seed', view), find('.slices input', view)];
  const [made, canvas, between] = [find('button.made', view), find('canvas.paint', view), find('canvas.between', view)];
  const buttons = (where: string) => view.querySelectorAll<HTMLButtonElement>(`${where} button`);
  /** The label map as it came, and its slice, or what was painted. */
  let labels: { whole: Picked; slice: Blob } | undefined;
  let ends: [from: number, to: number] = [1, 2];

  const paint = new Paint(find('fieldset', view), (slice) => {
    if (!labels) return;
    labels = { slice, whole: { ...labels.whole, content: slice, name: 'painted.nii' } };
    again();
  });
  await paint.attachToCanvas(canvas);
  canvas.onkeydown = (event) => paint.key(event);

  const again = () => labels && void work.run('Synthesizing', synthesize);
  const ask = (what: string, fields: object, signal: AbortSignal): Promise<Response> =>
    post(`v1/models/${select.value}/${what}`, { labels: labels?.slice, seed: seed.value, ...fields }, signal);

  const strip = new Strip(find('input.position', view), () => {
    for (const button of buttons('.actions')) button.disabled = false;
    const share = strip.draw(between) / (strip.count - 1);
    const where = share % 1 ? `${Math.round(100 * share)} % of the way` : `seed ${ends[share]}`;
    put(view, { where: `Synthetic: ${where}`, frames: `${strip.count} images lie under the slider.` });
  });

  /** The images between the two ends. */
  const interpolate = async (signal: AbortSignal, say: Say) => {
    const [from, to] = ends;
    for (const end of buttons('.gallery')) end.ariaPressed = `${Number(end.value) === (end.className === 'from' ? from : to)}`;
    put(view, { ends: `seed ${from} and seed ${to}`, frames: '' });
    await strip.load(COARSE_THEN_FINE, (steps) => {
      say(`${steps} images from seed ${from} to ${to}`);
      return ask('interpolate?format=png', { seed: from, to_seed: to, steps }, signal);
    });
  };

  /** One seed's image, and what to use it for. */
  const tile = (sheet: ImageBitmap, at: number) => {
    const number = seed.valueAsNumber + at;
    const image = make('canvas', { role: 'img', ariaLabel: `Seed ${number}` });
    drawCell(image, sheet, at, SEEDS);
    const end = (className: string, then: () => void) => make('button', {
      type: 'button', className, value: `${number}`, ariaLabel: `${className} seed ${number}`,
      onclick: () => {
        then();
        void work.run('Synthesizing', interpolate);
      },
    }, className);
    return make('figure', {}, image, make('figcaption', {}, `${number}`,
      end('from', () => { ends[0] = number; }), end('to', () => { ends[1] = number; })));
  };

  const synthesize = async (signal: AbortSignal, say: Say) => {
    say(`Synthesizing ${SEEDS} images`);
    const sheet = await createImageBitmap(await (await ask('synthesize?format=png', { count: SEEDS }, signal)).blob());
    ends = [seed.valueAsNumber, seed.valueAsNumber + 1];
    put(view, { gallery: Array.from({ length: SEEDS }, (_, at) => tile(sheet, at)) });
    await interpolate(signal, say);
  };

  /** Show a label map, of a volume one slice, and begin. */
  const load = (whole: Picked, index?: number) => work.run(`Reading ${whole.name}`, async (signal, say) => {
    const read = (more: object) => post('v1/images?format=nifti', { image: whole.content, kind: 'labels', ...more }, signal);
    const answer = await read({});
    const slice = chooseSlice(view, answer, index);
    const nifti = await (slice === undefined ? answer : await read({ slice })).bytes();
    labels = { whole, slice: slice === undefined ? whole.content : new Blob([nifti]) };
    await paint.load(nifti, modelNamed(select.value), hasGeometry(answer));
    const image = whole.original;
    find('.original', view).hidden = !image;
    if (image) find('.original img', view).src = await picture(post('v1/images?format=png', { image, slice }, signal));
    await synthesize(signal, say);
  });

  source(view, work, () => 'labels', (picked) => void load(picked));
  view.addEventListener('shown', () => { made.disabled = !handed.labels; });
  made.onclick = () => handed.labels && void load(handed.labels);
  find('#to-synthesize').onclick = made.onclick;
  find('.blank', view).onclick = () => void load({ content: blank(BLANK), name: 'painted.nii' });
  slider.onchange = () => labels && void load(labels.whole, slider.valueAsNumber);
  seed.onchange = () => seed.reportValidity() && again();
  select.onchange = () => {
    if (labels) paint.colors(modelNamed(select.value));
    again();
  };
  find('.picture', view).onclick = () => between.toBlob((shown) => shown && save(shown, 'synthetic.png'));
  find('.save', view).onclick = () => void work.run('Synthesizing all of it', async (signal) => {
    const whole = await ask('synthesize?format=zip', { labels: labels?.whole.content, count: SEEDS }, signal);
    save(await whole.blob(), 'synthetic.zip');
  });
  return paint;
}
