/** What one view shows and how: an image, its label map, a window; by NiiVue, or slice by slice where there is no WebGL. */
import type { NVImage, SLICE_TYPE } from '@niivue/niivue';
import { coloured } from './colours.js';
import { Problem } from './service.svelte.js';
import { slices } from './flat.js';
import { readout } from './readout.js';
import { FAILED, noGraphics, OWN_PLANE, type Slice, takeValues, thinAxis, TOO_LARGE, type Tool, type Viewer } from './viewer.js';

/** Window and level of CT, in Hounsfield units. */
export const CT_WINDOWS: Record<string, [level: number, width: number]> = {
  Brain: [40, 80], 'Soft tissue': [50, 400], Lung: [-600, 1500], Bone: [400, 1800], Liver: [60, 160], Mediastinum: [50, 350],
};
const OVERLAY = 0.45; // opacity at first
const AIR = -500; // an image that reaches below is a CT in Hounsfield units

export class Scene<V extends Viewer = Viewer> {
  viewer: V;
  /** Why nothing is drawn by WebGL. */
  failure = $state.raw<Problem>();
  image = $state.raw<NVImage>();
  labels = $state.raw<NVImage>();
  /** The image as it is shown, if that is in colour. */
  picture = $state.raw<NVImage>();
  private colours: Uint8ClampedArray | undefined;
  /** Whether left and right mean anything. */
  geometry = $state(false);
  /** Whether it has one slice. */
  flat = $state(false);
  window = $state({ low: 0, high: 1 });
  opacity = $state(OVERLAY);
  tool = $state<Tool>('crosshair');
  crosshair = $state(true);
  radiological = $state(true);
  /** Where the crosshair or the pointer is, and what is there. */
  place = $state('');
  /** The slice that is shown, of a volume in one plane. */
  slice = $state.raw<Slice>();
  /** The slice that is shown where there is no WebGL, counted from 0. */
  flatSlice = $state(0);
  private planes = $state<SLICE_TYPE>(3);
  /** The opacity to which an overlay comes back that is off. */
  private before = OVERLAY;
  /** This one and what lies beside it: where and how one is looked at, all are. */
  private group: readonly Scene[] = [this as Scene];

  /** `name`: of the view; `make`: a viewer for it, another one if the first has failed. */
  constructor(readonly name: string, private readonly make: () => V) {
    this.viewer = $state.raw(this.begun());
  }

  private begun(): V {
    const viewer = this.make();
    viewer.onLost = (why) => { if (viewer === this.viewer) this.failure = why; };
    viewer.onWindow = (low, high) => this.setWindow(low, high);
    viewer.onLocationChange = (at) => {
      this.tell([...(at as { mm: number[] }).mm]);
      this.slice = viewer.slice();
    };
    return viewer;
  }

  /** From now on these are looked at where and as this one is. */
  beside(...others: Scene[]): void {
    for (const one of this.group) one.group = [one];
    const group = [this as Scene, ...others];
    for (const one of group) one.group = group;
    for (const one of others) [one.radiological, one.opacity, one.crosshair] = [this.radiological, this.opacity, this.crosshair];
    this.setTool(this.tool);
    this.broadcast();
  }

  /** What drags and keys do in one viewer, NiiVue does in the others. */
  private broadcast(): void {
    for (const one of this.group) one.viewer.broadcastTo(this.group.filter((other) => other !== one).map(({ viewer }) => viewer));
  }

  /** Go where another scene is, of an image of the same grid, with its window. */
  follow(other: Scene): void {
    this.setWindow(other.window.low, other.window.high);
    this.flatSlice = other.flatSlice;
    if (!other.failure) void this.draw((viewer) => viewer.follow(other.viewer));
  }

  private each(change: (one: Scene) => unknown): void {
    for (const one of this.group) change(one);
  }

  /** Try WebGL once more. */
  async again(): Promise<void> {
    const { image, labels, colours, window: { low, high } } = this;
    this.begin();
    if (!image) return;
    const slice = this.flatSlice;
    await this.show(image, this.geometry, this.planes, colours);
    if (this.image !== image) return; // another one was chosen meanwhile
    this.flatSlice = slice; // should it fail again
    this.setWindow(low, high);
    this.overlay(this.labels ?? labels); // one that has come meanwhile
  }

  private begin(): void {
    this.viewer = this.begun();
    this.failure = undefined;
    this.viewer.tool(this.tool);
    this.broadcast();
  }

  /** Show an image alone; `colours`: of a picture, see `coloursOf`. */
  async show(image: NVImage, geometry: boolean, planes: SLICE_TYPE, colours?: Uint8ClampedArray): Promise<void> {
    this.forgive();
    [this.image, this.labels, this.geometry, this.planes, this.place, this.told] = [image, undefined, geometry, planes, '', undefined];
    this.window = { low: image.cal_min ?? 0, high: image.cal_max ?? 1 };
    this.flat = (image.dimsRAS ?? []).slice(1, 4).includes(1);
    this.flatSlice = Math.floor(slices(image) / 2);
    this.colours = colours;
    await this.draw(async (viewer) => {
      await viewer.ready;
      if (this.image === image) viewer.image(image, geometry, planes); // else it is no longer to be shown
    });
    this.tint();
    void this.draw((viewer) => this.look(viewer));
  }

  /** Show other values of the same voxels, such as another channel: all but the window stays. */
  async exchange(image: NVImage, colours?: Uint8ClampedArray): Promise<void> {
    if (String(image.dimsRAS) !== String(this.image?.dimsRAS)) { // a channel that is of another image
      await this.show(image, this.geometry, this.planes, colours);
      return;
    }
    this.each((one) => {
      if (!one.image) return;
      takeValues(one.image, image);
      one.colours = colours;
    });
    this.setWindow(image.cal_min ?? 0, image.cal_max ?? 1);
    this.each((one) => one.tell());
  }

  /** Its colours, in its window. */
  private tint(): void {
    const { image, colours, picture: before, window: { low, high } } = this;
    const picture = image && colours && coloured(image, colours, low, high);
    this.picture = picture;
    if (picture || before) void this.draw((viewer) => viewer.colour(picture));
  }

  /** Lay a label map over the image, or take it away. */
  overlay(labels?: NVImage): void {
    if (labels) labels.opacity = this.opacity;
    this.labels = labels;
    void this.draw((viewer) => { if (viewer.volumes[0] === this.image) viewer.labels(labels); }); // else WebGL is still starting
    this.tell(); // its label, too
  }

  /** An image that is too large for WebGL does not keep another one from it. */
  private forgive(): void {
    if (this.failure?.code === TOO_LARGE) this.begin();
  }

  /** Nothing is shown. */
  clear(): void {
    this.each((one) => {
      one.forgive();
      [one.image, one.labels, one.picture, one.place, one.told, one.slice] = [undefined, undefined, undefined, '', undefined, undefined];
      void one.draw((viewer) => viewer.empty());
    });
  }

  setWindow(low: number, high: number): void {
    this.each((one) => {
      one.window = { low, high: high > low ? high : low + 1e-6 * (Math.abs(low) || 1) };
      void one.draw((viewer) => viewer.window(one.window.low, one.window.high));
      one.tint();
    });
  }

  setOpacity(opacity: number): void {
    this.before = opacity || this.opacity || this.before;
    this.each((one) => {
      one.opacity = opacity;
      void one.draw((viewer) => viewer.opacity(opacity));
    });
  }

  /** The overlay on or off. */
  toggleOverlay(): void {
    this.setOpacity(this.opacity ? 0 : this.before);
  }

  setPlanes(planes: SLICE_TYPE): void {
    this.each((one) => {
      one.planes = planes;
      void one.draw((viewer) => {
        viewer.setSliceType(planes);
        one.look(viewer);
      });
    });
  }

  /** Show another slice of the same plane, counted from 0. */
  setSlice(at: number): void {
    this.each((one) => one.draw((viewer) => viewer.step(0, 0, at - (viewer.slice()?.at ?? at))));
  }

  /** The same where there is no WebGL. */
  setFlatSlice(at: number): void {
    this.each((one) => { one.flatSlice = at; });
  }

  /** Enlarge what is at the crosshair. */
  zoom(by: number): void {
    this.each((one) => one.draw((viewer) => viewer.zoom(by)));
  }

  setTool(tool: Tool): void {
    this.each((one) => {
      one.tool = tool;
      one.viewer.tool(tool);
    });
  }

  setCrosshair(shown: boolean): void {
    this.each((one) => {
      one.crosshair = shown;
      void one.draw((viewer) => one.look(viewer));
    });
  }

  setSide(radiological: boolean): void {
    this.each((one) => {
      one.radiological = radiological;
      void one.draw((viewer) => one.look(viewer));
    });
  }

  /** Other colours for the label map. */
  recolor(colors: Parameters<NVImage['setColormapLabel']>[0]): void {
    const { labels } = this;
    labels?.setColormapLabel(colors);
    void this.draw((viewer) => viewer.updateGLVolume());
    this.labels = undefined; // tells what is drawn without WebGL
    this.labels = labels;
  }

  /** The whole image, its own window. */
  reset(): void {
    const { image } = this;
    if (!image) return;
    this.setWindow(image.robust_min ?? 0, image.robust_max ?? 1);
    this.each((one) => one.draw((viewer) => viewer.recentre()));
  }

  /** The sizes in millimetres that a pixel of the planes has that are shown; none where they mean nothing. */
  get pixel(): number[] {
    const { image, geometry, planes } = this;
    if (!image || !geometry) return [];
    const thin = thinAxis(image);
    const across = thin < 0 ? OWN_PLANE.indexOf(planes) : thin;
    return (image.pixDimsRAS ?? []).slice(1, 4).filter((_, axis) => axis !== across);
  }

  get isCT(): boolean {
    return (this.image?.global_min ?? 0) < AIR;
  }

  private told: number[] | undefined;
  /** Say what is at a place in millimetres; at the one told last unless another is given. */
  tell(mm = this.told): void {
    this.told = mm;
    if (this.image && mm) this.place = readout(mm, this.image, this.labels, this.geometry, this.viewer.labelAt(mm));
  }

  /** Whether the patient's right is on the left; what has no sides is shown as the file has it. */
  get mirrored(): boolean {
    return this.radiological || !this.geometry;
  }

  private look(viewer: V): void {
    if (viewer.opts.isRadiologicalConvention !== this.mirrored) viewer.setRadiologicalConvention(this.mirrored);
    viewer.crosshair(this.crosshair);
    this.slice = viewer.slice();
  }

  /** Draw by WebGL, unless that has failed or fails now. */
  private draw(how: (viewer: V) => unknown): Promise<void> {
    const { viewer } = this;
    if (this.failure) return Promise.resolve();
    const failed = (error: unknown) => {
      if (viewer !== this.viewer || this.failure) return;
      if (!(error instanceof Problem)) console.warn(error);
      this.failure = error instanceof Problem ? error : noGraphics(FAILED);
    };
    try {
      return Promise.resolve(how(viewer)).then(() => undefined, failed);
    } catch (error) {
      failed(error);
      return Promise.resolve();
    }
  }
}
