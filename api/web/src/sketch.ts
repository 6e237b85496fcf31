/** A label map alone, that can be painted on. */
import { NVImage, SLICE_TYPE } from '@niivue/niivue';
import { Paint } from './paint.js';

/** An empty square of `size` pixels of 1 mm, as NIfTI. */
export const blank = (size: number): Blob => new Blob([new Uint8Array(
  NVImage.createNiftiArray([size, size, 1], undefined, undefined, undefined, new Uint8Array(size * size)))]);

export class Sketch extends Paint {
  /** `changed` gets the label map as NIfTI once a stroke is done. */
  constructor(changed: (nifti: Promise<Uint8Array>) => void) {
    super(() => changed(this.painted()));
    this.setDrawOpacity(1);
  }

  /** Show a label map in a model's colours. */
  override image(labels: NVImage, geometry: boolean): void {
    super.image(labels, geometry, SLICE_TYPE.AXIAL);
    Object.assign(this.volumes[0] ?? {}, { cal_min: 1e6, cal_max: 1e7 }); // black: the drawing is what is seen
    this.load(labels);
  }

  /** These voxels, as one step more. */
  startOver(voxels: Uint8Array): void {
    this.adopt(voxels.slice());
  }

  /** Whether these voxels are what is painted. */
  is(voxels: Uint8Array): boolean {
    return this.drawBitmap?.every((value, at) => value === voxels[at]) ?? false;
  }

  /** The drawing is the label map: nothing lies over it. */
  override labels(): void {}
}
