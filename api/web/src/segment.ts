/** Drop an image, see its label map. */
import { unzipSync } from 'fflate';
import { modelNamed, modelSelect, type Model, type Picked, provenance } from './catalog.js';
import { find, make, save, seen, told } from './dom.js';
import { hand } from './handed.js';
import { post } from './service.js';
import { source } from './source.js';
import { Viewer } from './viewer.js';
import { Work } from './work.js';

interface Answer { volumes: Record<string, number>; unit: string; shape: number[]; warnings: string[] }

export async function segmentView(view: HTMLElement): Promise<Viewer> {
  const viewer = await Viewer.on(find<HTMLCanvasElement>('canvas', view), (text) => {
    find('.place', view).textContent = text;
  });
  const work = new Work(find('.work', view));
  const select = modelSelect(view, 'segmentation');
  const opacity = find<HTMLInputElement>('.opacity', view);
  const planes = find<HTMLSelectElement>('.planes', view);
  const side = find<HTMLSelectElement>('.side', view);
  let now: Picked | undefined;
  let labels: Picked | undefined;

  const segment = (picked: Picked) => work.run(`Segmenting ${picked.name}`, async (signal) => {
    now = picked;
    find('.answer', view).hidden = true;
    const model = modelNamed(select.value);
    const image = await post('v1/images?format=nifti', { image: picked.content }, signal);
    const geometry = image.headers.get('Caps-Med-Geometry') === 'yes';
    await viewer.image(new Uint8Array(await image.arrayBuffer()), geometry);
    find('.empty', view).hidden = true;
    find<HTMLFieldSetElement>('.look', view).disabled = false;
    for (const control of view.querySelectorAll<HTMLElement>('.look .volume')) control.hidden = viewer.flat;
    if (viewer.flat && geometry) side.parentElement?.removeAttribute('hidden');
    await seen(); // a volume is drawn before a network takes the processor
    const answer = await post(`v1/models/${model.name}/segment?format=zip`, { image: picked.content }, signal);
    const files = unzipSync(new Uint8Array(await answer.arrayBuffer()));
    const own = Object.keys(files)[0] ?? '';
    await viewer.labels(files['segmentation.nii.gz'] ?? new Uint8Array(), model, Number(opacity.value));
    labels = {
      content: new Blob([bytes(files, own)]),
      name: `${picked.name.replace(/(\.nii)?\.[^.]*$/, '')}-${model.name}${own.slice(own.indexOf('.'))}`,
    };
    table(view, viewer, model, JSON.parse(new TextDecoder().decode(bytes(files, 'answer.json'))) as Answer);
    find('.provenance dl', view).replaceChildren(
      ...provenance(answer).flatMap(([name, value]) => [make('dt', {}, name), make('dd', {}, value)]));
    find('.answer', view).hidden = false;
    hand({ image: picked, labels: { ...labels, original: picked.content } });
  });

  source(view, work, () => 'image', (picked) => void segment(picked));
  select.addEventListener('change', () => now && void segment(now));
  opacity.addEventListener('input', () => {
    if (viewer.nv.volumes[1]) viewer.nv.setOpacity(1, Number(opacity.value));
  });
  planes.addEventListener('change', () => viewer.show(Number(planes.value)));
  side.addEventListener('change', () => viewer.nv.setRadiologicalConvention(side.value === 'radiological'));
  find('.download', view).addEventListener('click', () => labels && save(labels.content, labels.name));
  return viewer;
}

function bytes(files: Record<string, Uint8Array>, name: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(files[name] ?? []);
}

/** Each label with its colour, its volume, its share of all labels, and whether it is shown. */
function table(view: HTMLElement, viewer: Viewer, model: Model, answer: Answer): void {
  const hidden = new Set<number>();
  const whole = Object.values(answer.volumes).reduce((sum, volume) => sum + volume, 0) || 1;
  const cubic = answer.unit === 'mm3';
  const large = cubic && whole > 1e5;
  find('.unit', view).textContent = !cubic ? 'Area [pixels]' : large ? 'Volume [cm³]' : 'Volume [mm³]';
  const rows = Object.entries(model.labels).filter(([, name]) => name in answer.volumes).map(([id, name]) => {
    const volume = answer.volumes[name] ?? 0;
    const shown = make('input', { type: 'checkbox', checked: true });
    shown.setAttribute('aria-label', `Show ${name}`);
    shown.addEventListener('change', () => {
      hidden[shown.checked ? 'delete' : 'add'](Number(id));
      viewer.hide(model, hidden);
    });
    const swatch = make('span', { className: 'swatch' });
    swatch.style.backgroundColor = `rgb(${model.colors[id]?.join(' ')})`;
    return make('tr', {},
      make('td', {}, swatch, name),
      make('td', { className: 'number' }, large ? told(volume / 1000, 4) : told(volume, 6)),
      make('td', { className: 'number' }, `${((100 * volume) / whole).toFixed(1)} %`),
      make('td', {}, shown));
  });
  find('.legend tbody', view).replaceChildren(...rows);
  const caption = [`${answer.shape.join(' × ')} ${answer.shape.length === 2 ? 'pixels' : 'voxels'}`, ...answer.warnings];
  find('.legend caption', view).textContent = caption.join('. ');
}
