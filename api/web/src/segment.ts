/** Drop an image, see its label map. */
import { strFromU8, unzipSync } from 'fflate';
import { handed, hasGeometry, type Model, modelNamed, type Picked, source, swatch } from './catalog.js';
import { facts, find, make, put, row, save, told } from './dom.js';
import { post } from './service.js';
import { Viewer } from './viewer.js';
import { Work } from './work.js';

interface Answer { volumes: Record<string, number>; unit: string; shape: number[]; warnings: string[] }

export async function segmentView(view: HTMLElement): Promise<Viewer> {
  const viewer = new Viewer();
  const work = new Work(find('.work', view));
  const [select, opacity] = [find('select.model', view), find('input.opacity', view)];
  const [planes, side] = [find('select.planes', view), find('select.side', view)];
  viewer.onLocationChange = (place) => put(view, { place: (place as { string: string }).string });
  await viewer.attachToCanvas(find('canvas', view));

  const segment = (picked: Picked) => work.run(`Segmenting ${picked.name}`, async (signal) => {
    handed.image = picked;
    delete handed.labels;
    find('.answer', view).hidden = true;
    const model = modelNamed(select.value);
    const image = await post('v1/images?format=nifti', { image: picked.content }, signal);
    const geometry = hasGeometry(image);
    await viewer.image(await image.bytes(), geometry, Number(planes.value));
    find('fieldset', view).disabled = false;
    find('label:has(.planes)', view).hidden = viewer.thin >= 0;
    find('label:has(.side)', view).hidden = viewer.thin >= 0 && !geometry;
    await drawn(); // a volume is on the screen before a network takes the processor
    const answer = await post(`v1/models/${model.name}/segment?format=zip`, { image: picked.content }, signal);
    const files = unzipSync(await answer.bytes());
    const file = (name: string) => new Uint8Array(files[name] ?? []);
    await viewer.labels(file('segmentation.nii.gz'), model, opacity.valueAsNumber);
    const said = [...answer.headers].filter(([name]) => name.startsWith('caps-med-'));
    put(view, { from: facts(said.map(([name, value]) => [name.replace('caps-med-', '').replaceAll('-', ' '), value])) });
    table(view, viewer, model, JSON.parse(strFromU8(file('answer.json'))));
    find('.answer', view).hidden = false;
    const own = Object.keys(files)[0] ?? ''; // in the input's format
    const name = `${picked.name.replace(/(\.nii)?\.[^.]*$/, '')}-${model.name}${own.slice(own.indexOf('.'))}`;
    handed.labels = { content: new Blob([file(own)]), name, original: picked.content };
  });

  source(view, work, () => 'image', (picked) => void segment(picked));
  select.onchange = () => handed.image && void segment(handed.image);
  opacity.oninput = () => viewer.volumes[1] && viewer.setOpacity(1, opacity.valueAsNumber);
  planes.onchange = () => viewer.setSliceType(Number(planes.value));
  side.onchange = () => viewer.setRadiologicalConvention(side.value === 'radiological');
  find('.download', view).onclick = () => handed.labels && save(handed.labels.content, handed.labels.name);
  return viewer;
}

/** Once what was asked to be drawn is drawn; a tab in the background draws nothing and does not wait. */
const drawn = (): Promise<unknown> => Promise.race([
  new Promise(requestAnimationFrame), new Promise((then) => { setTimeout(then, document.hidden ? 0 : 8000); })]);

/** Each label with its colour, its volume, its share of all labels, and whether it is shown. */
function table(view: HTMLElement, viewer: Viewer, model: Model, { volumes, unit, shape, warnings }: Answer): void {
  const whole = Object.values(volumes).reduce((sum, volume) => sum + volume, 0) || 1;
  const large = unit === 'mm3' && whole > 1e5;
  const rows = Object.entries(model.labels).filter(([, name]) => name in volumes).map(([id, name]) => {
    const volume = volumes[name] ?? 0;
    const shown = make('input', { type: 'checkbox', checked: true, ariaLabel: `Show ${name}` });
    shown.onchange = () => viewer.toggle(Number(id), shown.checked);
    return row([make('td', {}, ...swatch(model, id)), large ? told(volume / 1000, 4) : told(volume, 6),
      `${((100 * volume) / whole).toFixed(1)} %`, shown]);
  });
  const size = `${shape.join(' × ')} ${shape.length === 2 ? 'pixels' : 'voxels'}`;
  const measure = unit !== 'mm3' ? 'Area [pixels]' : large ? 'Volume [cm³]' : 'Volume [mm³]';
  put(view, { rows, found: [size, ...warnings].join('. '), unit: measure });
}
