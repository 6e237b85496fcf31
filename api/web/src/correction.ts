/** An image whose label map is corrected: by brush, eraser, fill, and interpolation between slices. */
import type { NVImage } from '@niivue/niivue';
import { around, between, changedSlices, fill, interpolate, type Normal, type Voxel } from './editing.js';
import { LARGEST, Paint } from './paint.js';
import { Problem } from './service.svelte.js';
import { decoded } from './viewer.js';

/** What dragging does to the label map. */
export const ACTS = { brush: 'Brush', eraser: 'Eraser', fill: 'Fill' };
export type Act = keyof typeof ACTS;
/** What the next stroke does; `act`: nothing for looking only; `through`: a fill goes through all slices; `range`: of the intensities to be changed. */
export interface Means { act: Act | ''; label: number; size: number; through: boolean; range: [low: number, high: number] | undefined }

/** A correction that is not saved: its voxels in NiiVue's order, and the slices that were painted by hand, as `axis:slice`. */
export interface Unsaved { labels: Uint8Array; slices: string[] }

/** A label map's voxels in NiiVue's order. */
export const inOrder = (labels: NVImage): Uint8Array => Uint8Array.from(labels.img2RAS() as ArrayLike<number>);

const BYTES = 2; // NIfTI's code of such voxels

/** A label map of an image that has one label everywhere. */
export function uniform(image: NVImage, label: number): NVImage {
  const map = image.clone();
  const [, nx = 1, ny = 1, nz = 1] = image.hdr?.dims ?? [];
  Object.assign(map.hdr as object, { datatypeCode: BYTES, numBitsPerVoxel: 8, scl_slope: 1, scl_inter: 0 });
  map.img = new Uint8Array(nx * ny * nz).fill(label);
  return map;
}

/** What the service has where a label map that was painted is shown, and its slices that were painted by hand. */
interface Base { saved: Uint8Array; begun: Uint8Array; slices: Set<string> }
const bases = new WeakMap<NVImage, Base>();

/** Refuse labels that a byte does not hold: they would be saved as others. */
export function checkIds(labels: Record<string, string>): void {
  const others = Object.keys(labels).filter((id) => Number(id) > LARGEST);
  if (others.length)
    throw new Problem('labels above 255', `This page corrects labels from 0 to ${LARGEST}; this project has ${others.slice(0, 3).join(', ')}${others.length > 3 ? ' and others' : ''}. Correct them in 3D Slicer, which opens projects, too.`);
}

export class Correction extends Paint {
  private act: Act | '' = '';
  private through = false;
  private nothing = 0;
  /** The label map as the service has it. */
  private saved: Uint8Array = new Uint8Array();
  /** As painting by hand has begun with it; what is saved since then stays painted by hand. */
  private begun: Uint8Array = new Uint8Array();
  private values: { of: NVImage['img']; all: ArrayLike<number> } | undefined;
  private slices = new Set<string>();
  private last: Normal | undefined;
  /** Told once a label map that comes from the service can be painted on. */
  onBegun: () => void = () => undefined;

  /** Correct this label map. */
  override labels(volume?: NVImage): void {
    if (!volume) return;
    this.load(volume);
    const base = bases.get(volume);
    this.saved = base?.saved ?? (this.drawBitmap as Uint8Array).slice();
    this.begun = base?.begun ?? this.saved;
    this.slices = new Set(base?.slices);
    [this.values, this.last] = [undefined, undefined];
    if (!base) this.onBegun();
  }

  /** Correct nothing: what was painted is of an image that is no longer open. */
  leave(): void {
    this.drawBitmap = null;
  }

  /** The label map as it is now, on which another viewer goes on. */
  async handed(): Promise<NVImage> {
    const { saved, begun, slices } = this;
    const map = await decoded(await this.painted());
    bases.set(map, { saved, begun, slices });
    return map;
  }

  override opacity(share: number): void {
    this.setDrawOpacity(share);
  }

  /** `nothing`: the label that the eraser leaves. */
  use({ act, label, size, through, range }: Means, nothing: number): void {
    [this.act, this.through, this.nothing] = [act, through, nothing];
    this.allowed = range && between(this.intensities(), ...range);
    this.choose(act === '' ? '' : `${act === 'eraser' ? nothing : label}`, size, false);
  }

  /** The image's values in NiiVue's order. */
  private intensities(): ArrayLike<number> {
    const [image] = this.volumes;
    if (!image) return [];
    const { scl_slope: slope, scl_inter: offset } = image.hdr ?? { scl_slope: 1, scl_inter: 0 };
    if (this.values?.of !== image.img) {
      const stored = image.img2RAS() as ArrayLike<number>;
      const all = new Float32Array(stored.length); // `from` with a function makes a plain array of all first
      for (let i = 0; i < all.length; i++) all[i] = (stored[i] as number) * (slope || 1) + offset;
      this.values = { of: image.img, all };
    }
    return this.values?.all ?? [];
  }

  override drawPt(x: number, y: number, z: number, label: number, bitmap: Uint8Array | null = this.drawBitmap): void {
    const at: Voxel = [Math.round(x), Math.round(y), Math.round(z)];
    const normal = this.normal();
    const map = this.map(bitmap);
    if (this.act !== 'fill') super.drawPt(...at, label, bitmap);
    else if (map) fill(map, at, this.through ? undefined : normal, label, this.allowed);
    this.last = normal;
    this.slices.add(`${normal}:${at[normal]}`);
  }

  /** A fill is where the pointer was pressed, and nowhere else. */
  override drawPenLine(from: number[], to: number[], label: number): void {
    if (this.act !== 'fill') super.drawPenLine(from, to, label);
  }

  /** Interpolate a label between the two slices painted by hand around the crosshair; undefined if there are none. */
  interpolate(label: number): { slices: [number, number]; changed: number } | undefined {
    const map = this.map();
    const normal = this.last ?? this.normal();
    if (!map) return undefined;
    const byHand = changedSlices(map, this.begun, normal, label).filter((slice) => this.slices.has(`${normal}:${slice}`));
    const slices = around(byHand, Math.round(this.frac2vox(this.scene.crosshairPos)[normal] as number));
    if (!slices) return undefined;
    const [, x = 1, y = 1, z = 1] = this.volumes[0]?.pixDimsRAS ?? [];
    const changed = interpolate(map, normal, slices, label, [x, y, z], this.allowed, this.nothing);
    if (changed) this.adopt(map.labels);
    return { slices, changed };
  }

  /** How many voxels differ from what the service has, and of how many. */
  difference(other: Uint8Array = this.saved): { changed: number; of: number } {
    let changed = 0;
    this.drawBitmap?.forEach((value, index) => { if (value !== other[index]) changed += 1; });
    return { changed, of: this.drawBitmap?.length ?? 0 };
  }

  unsaved(): Unsaved | undefined {
    return this.drawBitmap ? { labels: this.drawBitmap, slices: [...this.slices] } : undefined;
  }

  /** Go on with a correction; whether it fits. */
  restore({ labels, slices }: Unsaved): boolean {
    if (labels.length !== this.drawBitmap?.length) return false;
    this.slices = new Set(slices);
    this.adopt(labels);
    return true;
  }

  /** Give all voxels one label, as one step more. */
  paintAll(label: number): void {
    if (this.drawBitmap) this.adopt(new Uint8Array(this.drawBitmap.length).fill(label));
  }

  /** What the service has, as one step more. */
  startOver(): void {
    this.adopt(this.saved.slice());
  }

  /** The service has this now, which was painted here. */
  stored(saved: Uint8Array): void {
    this.saved = saved.slice();
  }

  /** The service has another label map now; `taken`: it is shown, too. */
  rebase(saved: Uint8Array | undefined, taken = false): void {
    if (!saved) return;
    this.stored(saved);
    this.begun = this.saved;
    this.slices.clear();
    if (taken) this.adopt(saved.slice());
  }
}
