/** Where an image or a label map comes from: dropped, chosen, a sample, or another view. */
import { find, make, put } from './dom.js';
import { call, json, picture, post } from './service.js';
import type { Work } from './work.js';

export type Kind = 'image' | 'labels';
export interface Sample {
  name: string; title: string; kind: Kind; description: string; file: string; image_of: string | null;
}
/** A file to look at; `original`: the image that a label map is of. */
export interface Picked { content: Blob; name: string; original?: Blob }

/** The last image that was segmented, and its label map. */
export const handed: { image?: Picked; labels?: Picked } = {};

const thumbnails = new Map<string, Promise<string>>();

export const allSamples = async (): Promise<Sample[]> =>
  (await json<{ samples: Sample[] }>('v1/samples')).samples;
export const sampleFile = async (name: string): Promise<Blob> => (await call(`v1/samples/${name}`)).blob();

/** Let a view take a file, or one of the samples of a kind; what is returned lists them anew. */
export function source(view: HTMLElement, work: Work, kind: () => Kind, picked: (file: Picked) => void): () => void {
  const input = find('.drop input', view);
  input.onchange = () => {
    const file = input.files?.item(0);
    if (file) picked({ content: file, name: file.name });
    input.value = ''; // the same file may be chosen again
  };
  const list = () => void work.quick(allSamples().then((samples) => put(view, {
    samples: samples.filter((sample) => sample.kind === kind()).map((sample) => button(sample, work, picked)),
  })));
  document.addEventListener('key', list);
  list();
  return list;
}

function button(sample: Sample, work: Work, picked: (file: Picked) => void): HTMLButtonElement {
  const image = make('img', { alt: '', width: 48, height: 48 });
  const shown = thumbnails.get(sample.name) ?? thumbnail(sample);
  thumbnails.set(sample.name, shown);
  shown.then((url) => { image.src = url; }, () => thumbnails.delete(sample.name)); // the title is enough
  const take = async () => picked({
    content: await sampleFile(sample.name), name: sample.file,
    ...(sample.image_of && { original: await sampleFile(sample.image_of) }),
  });
  return make('button', { type: 'button', className: 'sample', onclick: () => void work.quick(take()) },
    image, make('span', {}, make('strong', {}, sample.title), sample.description));
}

const thumbnail = async ({ name, kind }: Sample): Promise<string> =>
  picture(post('v1/images?format=png', { image: await sampleFile(name), kind }));

/** Whether left and right mean anything in what `v1/images` has answered. */
export const hasGeometry = (answer: Response): boolean => answer.headers.get('Caps-Med-Geometry') === 'yes';

/** Set the slider for the slices of what `v1/images` has answered; which one it is, of a volume. */
export function chooseSlice(view: HTMLElement, answer: Response, index?: number): number | undefined {
  const count = Number(answer.headers.get('Caps-Med-Slices'));
  const at = index ?? Math.floor(count / 2);
  find('.slices', view).hidden = count < 2;
  Object.assign(find('.slices input', view), { max: count - 1, value: at });
  find('.slices output', view).textContent = `${at + 1} of ${count}`;
  return count > 1 ? at : undefined;
}
