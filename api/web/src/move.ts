/** Move one atom of the class capsules, and see the reconstruction change. */
import type { Detail, Picked } from './catalog.js';
import { fill, find } from './dom.js';
import { post } from './service.js';
import { Strip } from './strip.js';
import { Work } from './work.js';

const REACH = 0.25; // of LaLonde's figure
const COARSE_THEN_FINE = [5, 21]; // odd: the middle one is the reconstruction itself

/** Shifts from -REACH to REACH, as the service takes them. */
export const deltas = (count: number): string =>
  Array.from({ length: count }, (_, i) => (REACH * ((2 * i) / (count - 1) - 1)).toFixed(4)).join(',');

export function moveView(form: HTMLFormElement): { show(model: Detail, image: Picked, slice?: number): void } {
  const work = new Work(find('.work', form));
  const slider = find<HTMLInputElement>('.delta', form);
  const [still, moved, change] = ['.still', '.moved', '.change'].map((name) => find<HTMLCanvasElement>(name, form)) as
    [HTMLCanvasElement, HTMLCanvasElement, HTMLCanvasElement];
  const capsule = find<HTMLSelectElement>('.class', form);
  const atom = find<HTMLSelectElement>('.atom', form);
  const strip = new Strip();
  let again = (): void => undefined;

  const draw = () => {
    find('output', form).textContent = Number(slider.value).toFixed(2);
    strip.draw(still, 0.5);
    strip.draw(moved, (Number(slider.value) / REACH + 1) / 2);
    const context = change.getContext('2d');
    if (!context || strip.count === 0) return;
    Object.assign(change, { width: moved.width, height: moved.height });
    context.drawImage(still, 0, 0);
    context.globalCompositeOperation = 'difference';
    context.drawImage(moved, 0, 0);
    context.globalCompositeOperation = 'lighter'; // twice: four times as bright
    for (let i = 0; i < 2; i++) context.drawImage(change, 0, 0);
  };

  const compute = (model: Detail, image: Picked, slice?: number) => work.run('Reconstructing', async (signal, say) => {
    slider.disabled = true;
    await strip.load(async (count, stop) => {
      say(`${count} reconstructions`);
      const fields = { image: image.content, capsule: capsule.value, atom: atom.value, deltas: deltas(count), slice };
      return (await post(`v1/models/${model.name}/manipulate?format=png`, fields, stop)).blob();
    }, COARSE_THEN_FINE, signal, () => {
      slider.disabled = false;
      draw();
    });
  });

  slider.addEventListener('input', draw);
  for (const chosen of [capsule, atom]) chosen.addEventListener('change', () => again());
  form.addEventListener('submit', (event) => event.preventDefault());
  return {
    show(model, image, slice) {
      const last = model.layers.at(-1);
      const labels = Object.values(model.labels);
      const types = Array.from({ length: last?.types ?? 0 }, (_, j): [string, string] =>
        [`${j}`, (last?.types === 1 ? labels[1] : labels[j]) ?? `type ${j}`]);
      fill(capsule, model.task === 'segmentation' ? types : []);
      fill(atom, Array.from({ length: last?.atoms ?? 0 }, (_, a) => [`${a}`, `${a}`]));
      form.hidden = model.task !== 'segmentation';
      if (types.length > 1) capsule.value = '1';
      again = () => void compute(model, image, slice);
      if (!form.hidden) again();
    },
  };
}
