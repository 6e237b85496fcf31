/** Where an image or a label map comes from: dropped on the view, chosen, or a sample. */
import { allSamples, type Picked, type Sample, sampleFile, thumbnail } from './catalog.js';
import { find, make } from './dom.js';
import type { Work } from './work.js';

const FORMATS = 'NIfTI, NRRD, DICOM, PNG, TIFF, JPEG, npy';

/** Fill the view's `.source` with samples of a kind; call `picked` with whatever is taken. */
export function source(
  view: HTMLElement, work: Work, kind: () => Sample['kind'], picked: (file: Picked) => void,
): { refresh(): void } {
  const input = make('input', { type: 'file' });
  const invitation = make('strong');
  const drop = make('label', { className: 'drop' }, invitation, FORMATS, input);
  const list = make('div', { className: 'samples' });
  find('.source', view).replaceChildren(drop, list);
  const take = (file?: File | null) => {
    if (file) picked({ content: file, name: file.name });
  };
  input.addEventListener('change', () => {
    take(input.files?.item(0));
    input.value = ''; // the same file may be chosen again
  });
  // on the way down: NiiVue lets no drag event that reaches its canvas go on
  view.addEventListener('dragover', (event) => {
    event.preventDefault();
    view.classList.add('over');
  }, true);
  view.addEventListener('dragleave', () => view.classList.remove('over'), true);
  view.addEventListener('drop', (event) => {
    event.preventDefault();
    view.classList.remove('over');
    take(event.dataTransfer?.files.item(0));
  }, true);
  const show = async () => {
    invitation.textContent = `Drop ${kind() === 'image' ? 'an image' : 'a label map'} or choose one`;
    const samples = (await allSamples()).filter((sample) => sample.kind === kind());
    list.replaceChildren(...samples.map((sample) => button(sample, work, picked)));
  };
  const refresh = () => void show().catch((error) => work.fail(error));
  document.addEventListener('key', refresh);
  refresh();
  return { refresh };
}

function button(sample: Sample, work: Work, picked: (file: Picked) => void): HTMLButtonElement {
  const picture = make('img', { alt: '', width: 56, height: 56 });
  thumbnail(sample).then((url) => { picture.src = url; }, () => undefined); // the title is enough
  const take = async () => picked({
    content: await sampleFile(sample.name), name: sample.file,
    ...(sample.image_of && { original: await sampleFile(sample.image_of) }),
  });
  const words = make('span', {}, make('strong', {}, sample.title), sample.description);
  return make('button', {
    type: 'button', className: 'sample', onclick: () => void take().catch((error) => work.fail(error)),
  }, picture, words);
}
