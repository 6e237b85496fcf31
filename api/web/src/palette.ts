/** The colours of labels: a model's own, or ones that colour-blind people can tell apart. */
import type { Model } from './catalog.svelte.js';

/** `alpha`: up to 255, which it is unless told. */
export type Color = [red: number, green: number, blue: number, alpha?: number];
export const PALETTES = { model: "the model's own", safe: 'colour-blind safe' };
export type Palette = keyof typeof PALETTES;

/** Okabe and Ito 2008, without black, which is the background. */
export const OKABE_ITO: Color[] = [
  [230, 159, 0], [86, 180, 233], [0, 158, 115], [240, 228, 66], [0, 114, 178], [213, 94, 0], [204, 121, 167]];

/** What is not labelled: a veil of a colour that no grey of an image has. */
export const VEIL: Color = [80, 60, 220, 110];

/** The colours of labels, where a model has some of the same ids and names, as it has them. */
export function colorsAs(model: Pick<Model, 'labels' | 'colors'> | undefined, { labels, colors }: Pick<Model, 'labels' | 'colors'>): Record<string, Color> {
  const same = Object.entries(model?.colors ?? {}).filter(([id]) => id in labels && model?.labels[id] === labels[id]);
  return { ...colors, ...Object.fromEntries(same) };
}

/** A colour for each label; after the seventh label they come again, lighter. */
export function colorsOf({ labels, colors }: Pick<Model, 'labels' | 'colors'>, palette: Palette): Record<string, Color> {
  if (palette === 'model') return colors;
  const of = (at: number): Color => {
    const lighter = Math.floor(at / OKABE_ITO.length) / 3;
    return (OKABE_ITO[at % OKABE_ITO.length] as Color).map((value = 0) => Math.round(value + (255 - value) * Math.min(lighter, 0.8))) as Color;
  };
  const ids = Object.keys(labels).filter((id) => id !== '0');
  return { 0: [0, 0, 0], ...Object.fromEntries(ids.map((id, at) => [id, of(at)])) };
}
