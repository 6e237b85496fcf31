/** NiiVue, as this page uses it. */
import { DRAG_MODE, MULTIPLANAR_TYPE, Niivue, NVImage, SHOW_RENDER, SLICE_TYPE } from '@niivue/niivue';
import type { Model } from './catalog.svelte.js';
import type { Normal } from './editing.js';
import type { Color } from './palette.js';
import { Problem } from './service.svelte.js';

/** The plane across each axis. */
export const OWN_PLANE = [SLICE_TYPE.SAGITTAL, SLICE_TYPE.CORONAL, SLICE_TYPE.AXIAL];
const WINDOW_PIXELS = 300; // a drag that long changes the window by the image's range
const DECODING = 60_000; // milliseconds
/** Where dark copies of a letter lie behind it, in pixels of the screen. */
const EDGE = [[-1, 0], [1, 0], [0, -1], [0, 1]] as const;
const START = 20_000; // milliseconds that WebGL may take to begin
/** What dragging with the left button does. */
export const TOOLS = { crosshair: DRAG_MODE.crosshair, window: DRAG_MODE.windowing, pan: DRAG_MODE.pan };
export type Tool = keyof typeof TOOLS;

/** The viewers by view, for who looks from the console, or from a test. */
const capsMed: Record<string, Viewer> = {};
Object.assign(globalThis, { capsMed });

/** The colours of a model's labels; the background lets the image through. */
export function labelColors(labels: Model['labels'], colors: Record<string, Color>): Parameters<NVImage['setColormapLabel']>[0] {
  const I = Object.keys(labels).map(Number);
  const channel = (k: 0 | 1 | 2) => I.map((id) => colors[id]?.[k] ?? 255);
  return { R: channel(0), G: channel(1), B: channel(2), A: I.map((id) => (id ? colors[id]?.[3] ?? 255 : 0)), I, labels: Object.values(labels) };
}

/** NIfTI bytes as NiiVue holds them. */
export const decoded = (url: Uint8Array): Promise<NVImage> => within(NVImage.loadFromUrl({ url }), DECODING,
  new Problem('not decoded', `The browser has not decoded this image in ${DECODING / 1000} s. Reload this page and try again, or try a smaller image.`));

/** Why nothing is drawn by WebGL, and what to do. */
export const noGraphics = (why: string): Problem => new Problem('no 3-D graphics',
  `${why} Slices are shown instead. Try again, close other tabs with 3-D graphics, or switch on hardware acceleration (WebGL 2) in the browser's settings.`);

/** Why nothing is drawn once drawing has failed. */
export const FAILED = 'The 3-D graphics of this page have failed.';

/** Why an image is not drawn by WebGL that is longer than `most` voxels; WebGL would draw it without its label map, or not at all. */
export const tooLarge = (longest: number, most: number): Problem => new Problem('too large for 3-D graphics',
  `This image is ${longest} voxels long; the browser's 3-D graphics (WebGL 2) can draw at most ${most}. Slices are shown instead.`, TOO_LARGE);
export const TOO_LARGE = 'too_large_to_draw';

/** What is promised, or a failure once `milliseconds` have passed. */
export const within = <T>(promise: Promise<T>, milliseconds: number, late: Error): Promise<T> => {
  let timer: ReturnType<typeof setTimeout>;
  const end = new Promise<never>((_, fail) => { timer = setTimeout(() => fail(late), milliseconds); });
  return Promise.race([promise, end]).finally(() => clearTimeout(timer));
};

export interface Slice { at: number; count: number }

export class Viewer extends Niivue {
  /** The axis along which the image is one voxel thin; -1 of a volume. */
  thin = -1;
  /** Told once nothing can be drawn any more. */
  onLost: (why: Problem) => void = () => undefined;
  /** Told which window a drag asks for. */
  onWindow: (low: number, high: number) => void = () => undefined;
  /** Once it can draw in a canvas. */
  readonly ready: Promise<unknown>;
  private begin: (beginning: Promise<unknown>) => void = () => undefined;

  constructor() {
    super({
      backColor: [0.055, 0.063, 0.071, 1], crosshairColor: [0.36, 0.77, 0.74, 0.9], crosshairWidthUnit: 'percent',
      dragAndDropEnabled: false, isRadiologicalConvention: true, multiplanarShowRender: SHOW_RENDER.ALWAYS,
      multiplanarPadPixels: 4, multiplanarLayout: MULTIPLANAR_TYPE.GRID, fontMinPx: 15, fontColor: [1, 1, 1, 1], showAllOrientationMarkers: true, logLevel: 'error', loadingText: '',
    });
    this.ready = new Promise((ready) => { this.begin = ready; });
    this.ready.catch(() => undefined); // `onLost` is told, whether or not anyone waits
    this.tool('crosshair');
  }

  /** Draw in a canvas of the view of this name. */
  into = (name: string) => (canvas: HTMLCanvasElement): (() => void) => {
    const lost = (event: Event) => {
      event.preventDefault();
      this.onLost(noGraphics('The browser has stopped the 3-D graphics of this page.'));
    };
    canvas.addEventListener('webglcontextlost', lost);
    const over = new AbortController();
    const beginning = within(this.attachToCanvas(canvas), START, noGraphics('The 3-D graphics of this browser did not start.'))
      .catch((error) => { throw error instanceof Problem ? error : noGraphics('This browser does not provide 3-D graphics (WebGL 2).'); });
    beginning.then(() => {
      capsMed[name] = this;
      globalThis.addEventListener('beforeprint', () => this.drawNow(), over); // WebGL keeps no frame that was shown before
    }, this.onLost);
    this.begin(beginning);
    return () => {
      canvas.removeEventListener('webglcontextlost', lost);
      over.abort();
      void beginning.catch(() => undefined).then(() => this.end(name)); // not while it begins
    };
  };

  /** Let its WebGL go: a browser has some sixteen of them, and for one more takes the oldest away from another view. */
  private end(name: string): void {
    this.drawNoMore();
    this.cleanup(); // else the window holds it
    this._gl?.getExtension('WEBGL_lose_context')?.loseContext();
    if (capsMed[name] === this) delete capsMed[name];
  }

  /** Show an image alone, in `planes`, a flat one in its own. `geometry`: whether it has a left and right. */
  image(image: NVImage, geometry: boolean, planes: SLICE_TYPE): void {
    const [longest, most] = [Math.max(...(image.dimsRAS ?? []).slice(1, 4)), this.gl.getParameter(this.gl.MAX_3D_TEXTURE_SIZE)];
    if (longest > most) throw tooLarge(longest, most);
    this.closeDrawing();
    this.together(() => {
      this.empty();
      this.addVolume(image);
    });
    this.thin = thinAxis(image);
    this.setIsOrientationTextVisible(geometry);
    this.setInterpolation(!geometry);
    this.setSliceType(OWN_PLANE[this.thin] ?? planes);
    this.recentre();
  }

  /** Show nothing. */
  empty(): void {
    for (const old of [...this.volumes].reverse()) this.removeVolume(old);
    this.tinted = undefined;
  }

  /** The image in colour, which is drawn in its place: its values and its window are those in grey. */
  private tinted: NVImage | undefined;
  /** Draw the image in colour, or in grey again. */
  colour(picture?: NVImage): void {
    this.tinted = picture;
    this.updateGLVolume();
  }
  override refreshLayers(volume: NVImage, layer: number): void {
    super.refreshLayers((layer === 0 && this.tinted) || volume, layer);
  }

  /** Lay a label map over it, or take it away. */
  labels(volume?: NVImage): void {
    if (this.laid) this.removeVolume(this.laid);
    if (volume) this.addVolume(volume);
  }
  private get laid(): NVImage | undefined {
    return this.volumes[1];
  }

  /** How much of the image its label map hides, from 0 to 1. */
  opacity(share: number): void {
    if (this.laid) this.setOpacity(1, share);
  }

  /** What dragging does: with the left button `tool`, with the right one always the window, with the wheel pressed always pan. */
  tool(tool: Tool): void {
    this.setMouseEventConfig({
      leftButton: { primary: TOOLS[tool], withShift: DRAG_MODE.pan, withCtrl: DRAG_MODE.windowing },
      rightButton: DRAG_MODE.windowing, centerButton: DRAG_MODE.pan,
    });
    this.setTouchEventConfig({ singleTouch: TOOLS[tool], doubleTouch: DRAG_MODE.pan });
  }

  /** The two axes across and up the slice that keys and brushes work in. */
  plane(): [across: number, up: number] {
    return [0, 1, 2].filter((axis) => axis !== this.normal()) as [number, number];
  }

  /** The axis across that slice. */
  normal(): Normal {
    if (this.thin >= 0) return this.thin as Normal;
    return this.opts.sliceType === SLICE_TYPE.SAGITTAL ? 0 : this.opts.sliceType === SLICE_TYPE.CORONAL ? 1 : 2;
  }

  /** Which slice is shown, counted from 0, of how many; nothing for a picture, or several planes. */
  slice(): Slice | undefined {
    const { dimsRAS } = this.volumes[0] ?? {};
    if (!dimsRAS || this.thin >= 0 || this.opts.sliceType > SLICE_TYPE.SAGITTAL) return undefined;
    const axis = this.normal();
    return { at: this.frac2vox(this.scene.crosshairPos)[axis] as number, count: dimsRAS[1 + axis] as number };
  }

  /** Move the crosshair by rows and columns of the slice, and from slice to slice; turn the 3-D view. */
  step(rows: number, columns: number, through = 0): void {
    if (!this.volumes.length) return;
    if (this.opts.sliceType === SLICE_TYPE.RENDER) {
      this.setRenderAzimuthElevation(this.scene.renderAzimuth + 5 * columns, this.scene.renderElevation - 5 * rows);
      return;
    }
    const [across, up] = this.plane();
    const by: [number, number, number] = [0, 0, 0];
    by[across] = across === 0 && this.opts.isRadiologicalConvention ? -columns : columns; // the patient's right is on the left
    [by[up], by[this.normal()]] = [-rows, through];
    this.moveCrosshairInVox(...by);
  }

  /** Enlarge what is at the crosshair. */
  zoom(by: number): void {
    const [x, y, z, before] = this.scene.pan2Dxyzmm as [number, number, number, number];
    const after = Math.min(32, Math.max(0.5, before * by));
    const [right = 0, front = 0, up = 0] = this.frac2mm(this.scene.crosshairPos);
    const more = before - after; // as NiiVue does on a wheel: the crosshair stays where it is
    this.setPan2Dxyzmm([x + more * right, y + more * front, z + more * up, after]);
  }

  /** The whole image again, the crosshair in its middle. */
  recentre(): void {
    this.scene.crosshairPos = [0.5, 0.5, 0.5] as never;
    this.setPan2Dxyzmm([0, 0, 0, 1]);
    this.setScale(1);
    this.createOnLocationChange();
  }

  /** Go where another viewer is. */
  follow(other: Viewer): void {
    other.doSync2d(this);
    other.doSync3d(this);
    this.drawScene();
    this.createOnLocationChange();
  }

  private crossed = false;
  /** A crosshair of about one and a half pixels of the screen, or none. */
  crosshair(shown: boolean): void {
    this.crossed = shown;
    const { clientWidth, clientHeight } = this.canvas ?? { clientWidth: 600, clientHeight: 600 };
    const across = Math.min(clientWidth, clientHeight) / (this.opts.sliceType === SLICE_TYPE.MULTIPLANAR ? 2 : 1) || 300;
    const { dimsRAS = [], pixDimsRAS = [] } = this.volumes[0] ?? {};
    const [right = 1, ...others] = [1, 2, 3].map((axis) => (dimsRAS[axis] ?? 1) * (pixDimsRAS[axis] ?? 1));
    const share = Math.max(right, ...others) / right; // NiiVue's percents are of the size to the right, one voxel of a sagittal slice
    this.setCrosshairWidth(shown ? (150 * share) / across : 0);
  }

  window(low: number, high: number): void {
    const [image] = this.volumes;
    if (!image) return;
    Object.assign(image, { cal_min: low, cal_max: high });
    this.updateGLVolume();
  }

  /** To the right a wider window, up a brighter image; NiiVue's own steps do not depend on the image's range. */
  override windowingHandler(x: number, y: number): void {
    const [image] = this.volumes;
    if (!image) return;
    const range = (image.robust_max ?? 1) - (image.robust_min ?? 0) || 1;
    const [low, high] = [image.cal_min ?? 0, image.cal_max ?? 1];
    const [wider, darker] = [x - this.uiData.windowX, y - this.uiData.windowY].map((pixels) => (pixels * range) / WINDOW_PIXELS) as [number, number];
    const half = Math.max(range / 1000, high - low + wider) / 2;
    const level = (low + high) / 2 + darker;
    [this.uiData.windowX, this.uiData.windowY] = [x, y];
    this.onWindow(level - half, level + half);
  }

  /** A view that is hidden has no size: WebGL would warn of it. */
  private get hidden(): boolean {
    return this.canvas?.offsetWidth === 0;
  }
  /** A new size has cleared the canvas: an empty one would be shown if it were drawn in the next frame. */
  override resizeListener(): void {
    if (this.hidden) return;
    super.resizeListener();
    if (this.volumes.length) this.crosshair(this.crossed);
    this.drawNow();
  }

  private frame: number | undefined;
  /** NiiVue draws after each change of an option, or twice: drawn is once, in the next frame. Without graphics hardware each time takes long. */
  override drawScene(): undefined {
    this.frame ??= requestAnimationFrame(() => this.drawNow());
  }
  private drawNow(): void {
    this.drawNoMore();
    if (this.hidden) return;
    try {
      super.drawScene();
    } catch (error) {
      console.warn(error);
      this.onLost(noGraphics(FAILED));
    }
  }
  private drawNoMore(): void {
    if (this.frame !== undefined) cancelAnimationFrame(this.frame);
    this.frame = undefined;
  }

  private waits = false;
  /** Change volumes, and only then make what is drawn of them. */
  protected together(change: () => void): void {
    this.waits = true;
    try {
      change();
    } finally {
      this.waits = false;
    }
    this.updateGLVolume();
  }
  override updateGLVolume(): void {
    if (!this.waits) super.updateGLVolume();
  }

  /** Letters with a dark edge can be read over bright tissue as well as over air. */
  override drawText([x = 0, y = 0]: number[], text: string, scale?: number, color?: Float32List | null): void {
    const ratio = this.uiData.dpr ?? 1;
    for (const [right, down] of EDGE) super.drawText([x + ratio * right, y + ratio * down], text, scale, [0, 0, 0, 1]);
    super.drawText([x, y], text, scale, color);
  }

  /** Keys are the page's own; NiiVue's include one that opens an alert. */
  override keyDownListener(): void {}
  override keyUpListener(): void {}
  /** A double click would reset the window; a button does. */
  override resetBriCon(): void {}

  /** The label painted at a place in millimetres, of what can be painted on. */
  labelAt(_mm: number[]): number | undefined {
    return undefined;
  }

  /** The place below the pointer, in millimetres; undefined beside the slices. */
  below({ offsetX, offsetY }: MouseEvent): number[] | undefined {
    const ratio = this.uiData.dpr ?? 1;
    const frac = this.volumes.length ? this.canvasPos2frac([offsetX * ratio, offsetY * ratio]) : [-1];
    return (frac[0] as number) < 0 ? undefined : [...this.frac2mm(frac as never, 0, true)];
  }
}

/** Give an image the values of another one of the same voxels. */
export function takeValues(image: NVImage, { img, hdr, global_min, global_max, robust_min, robust_max }: NVImage): void {
  Object.assign(image, { img, hdr, global_min, global_max, robust_min, robust_max });
}

/** The axis along which an image is one voxel thin; -1 of a volume. */
export const thinAxis = (image: NVImage): number => image.dimsRAS?.slice(1, 4).indexOf(1) ?? -1;
