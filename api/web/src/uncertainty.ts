/** How sure a segmentation is, as colours over the image. */
import type { NVImage } from '@niivue/niivue';

/** The maps that the service answers, and what they are called here. */
export const MAPS = { entropy: 'entropy', confidence: 'confidence', disagreement: 'disagreement of mirror images' } as const;
export type MapName = keyof typeof MAPS;

/** Colours of 0 to 100 %: what is sure lets the image through, what is not goes from yellow to red. */
export function uncertaintyColors(name: MapName): Parameters<NVImage['setColormapLabel']>[0] {
  const I = Array.from({ length: 101 }, (_, percent) => percent);
  const doubt = I.map((percent) => (name === 'confidence' ? 100 - percent : percent) / 100);
  return {
    R: doubt.map(() => 255), G: doubt.map((share) => Math.round(220 * (1 - share))), B: doubt.map(() => 40),
    A: doubt.map((share) => (share < 0.005 ? 0 : Math.round(60 + 195 * share))), I, labels: I.map((percent) => `${name} ${percent} %`),
  };
}

/** Write shares, 0 to 1, as whole percents over the voxels of a label map of the same grid. */
export function fillWithPercents(map: NVImage, shares: NVImage, name: MapName): NVImage {
  const { scl_slope: slope, scl_inter: offset } = shares.hdr ?? { scl_slope: 1, scl_inter: 0 };
  const [percents, values] = [map.img as Uint8Array, shares.img as Float32Array];
  for (let i = 0; i < percents.length; i++) percents[i] = Math.round(100 * ((values[i] as number) * (slope || 1) + offset));
  map.setColormapLabel(uncertaintyColors(name));
  return map;
}
