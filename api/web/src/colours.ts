/** Pictures in colour. Their values are those of the picture in grey, and so is what a window makes of them. */
import type { NVImage } from '@niivue/niivue';

const RGB = 128; // NIfTI's code of such voxels
/** Of red, green and blue in grey: ITU-R BT.601, as the service has it. */
const WEIGHTS = [0.299, 0.587, 0.114] as const;

/** Red, green, blue and alpha of all pixels of a file, row by row; undefined of one that this browser does not read. */
export async function coloursOf(file: Blob): Promise<Uint8ClampedArray | undefined> {
  try {
    const bitmap = await createImageBitmap(file, { colorSpaceConversion: 'none', premultiplyAlpha: 'none' });
    const { width, height } = bitmap;
    const context = new OffscreenCanvas(width, height).getContext('2d');
    context?.drawImage(bitmap, 0, 0);
    bitmap.close();
    return context?.getImageData(0, 0, width, height).data;
  } catch {
    return undefined;
  }
}

/** A picture in its colours, as bright as a window makes it in grey. */
export function coloured(image: NVImage, colours: Uint8ClampedArray, low: number, high: number): NVImage {
  const picture = image.clone();
  const { scl_slope: slope, scl_inter: offset } = image.hdr ?? { scl_slope: 1, scl_inter: 0 };
  const values = image.img as ArrayLike<number>;
  const shown = new Uint8ClampedArray(3 * values.length);
  for (let i = 0; i < values.length; i++) {
    const [at, to] = [4 * i, 3 * i];
    const level = (255 * ((values[i] as number) * (slope || 1) + offset - low)) / (high - low);
    const [red, green, blue] = [colours[at] as number, colours[at + 1] as number, colours[at + 2] as number];
    const grey = WEIGHTS[0] * red + WEIGHTS[1] * green + WEIGHTS[2] * blue;
    const share = level / (grey || 1);
    [shown[to], shown[to + 1], shown[to + 2]] = grey ? [red * share, green * share, blue * share] : [level, level, level];
  }
  Object.assign(picture.hdr as object, { datatypeCode: RGB, numBitsPerVoxel: 24 });
  picture.img = new Uint8Array(shown.buffer);
  return picture;
}

/** Red, green and blue of a picture in colour, in NiiVue's order. */
export const channels = (image: NVImage, picture: NVImage): ArrayLike<number>[] => [0, 1, 2].map((k) => {
  const one = image.clone();
  one.img = Uint8Array.from({ length: image.img?.length ?? 0 }, (_, i) => (picture.img as Uint8Array)[3 * i + k] as number);
  return one.img2RAS() as ArrayLike<number>;
});
