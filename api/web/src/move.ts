/** Move one atom of the class capsules, and see the reconstruction change. */
import { fill, find } from './dom.js';
import { capsuleNames, type Detail, type Layer } from './models.js';
import { post } from './service.js';
import { Strip } from './strip.js';
import { Work } from './work.js';

const REACH = 0.25; // of LaLonde's figure
const COARSE_THEN_FINE = [5, 21]; // odd: the middle one is the reconstruction itself

/** Shifts from -REACH to REACH, as the service takes them. */
export const deltas = (count: number): string =>
  Array.from({ length: count }, (_, i) => (REACH * ((2 * i) / (count - 1) - 1)).toFixed(4)).join(',');

/** What is returned shows another model's capsules for an image, or its slice. */
export function moveView(form: HTMLFormElement): (model: Detail, image: Blob, slice?: number) => void {
  const work = new Work(find('.work', form));
  const [slider, capsule, atom] = [find('input.delta', form), find('select.class', form), find('select.atom', form)];
  const strip = new Strip(slider, () => {
    find('output', form).textContent = slider.valueAsNumber.toFixed(2);
    for (const canvas of form.querySelectorAll<HTMLCanvasElement>('.still')) strip.draw(canvas, 0.5);
    for (const canvas of form.querySelectorAll<HTMLCanvasElement>('.moved')) strip.draw(canvas);
  });
  return (model, image, slice) => {
    form.hidden = model.task !== 'segmentation';
    if (form.hidden) return;
    const last = model.layers.at(-1) as Layer;
    fill(capsule, capsuleNames(model, last));
    fill(atom, Array.from({ length: last.atoms }, (_, a) => `${a}`));
    if (last.types > 1) capsule.selectedIndex = 1; // no background
    form.onchange = ({ target }) => {
      if (target === slider) return;
      void work.run('Reconstructing', (signal, say) => strip.load(COARSE_THEN_FINE, (count) => {
        say(`${count} reconstructions`);
        const fields = { image, slice, capsule: capsule.selectedIndex, atom: atom.value, deltas: deltas(count) };
        return post(`v1/models/${model.name}/manipulate?format=png`, fields, signal);
      }));
    };
    form.dispatchEvent(new Event('change'));
  };
}
