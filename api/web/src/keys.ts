/** What keys and gestures do over a picture. */
import type { Scene } from './scene.svelte.js';
import { TOOLS, type Tool } from './viewer.js';

/** Rows and columns that an arrow key goes. */
export const ARROWS: Record<string, [rows: number, columns: number]> =
  { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const TOOL_KEYS: Record<string, Tool> = { c: 'crosshair', w: 'window', p: 'pan' };
export const ZOOM = 1.15; // of one step

/** For people. */
export const HELP: Record<string, [keys: string, what: string][]> = {
  'Pointer': [
    ['move', 'position and value under the pointer'],
    ['drag', 'what the chosen tool does: crosshair, window or pan'],
    ['drag, right button', 'window: drag right to widen it, up to brighten the image'],
    ['drag, wheel pressed or Shift', 'pan'],
    ['wheel', 'next or previous slice; zoom if there is only one'],
    ['Ctrl + wheel', 'zoom at the crosshair'],
  ],
  'Keys over the picture': [
    ['← → ↑ ↓', 'move the crosshair; turn the 3-D view'],
    ['Page Up, Page Down', 'next or previous slice'],
    ['+ −', 'zoom'],
    ['R', 'reset zoom, place and window'],
    ['C, W, P', 'tool: crosshair, window, pan'],
    ['X', 'crosshair on or off'],
    ['O', 'overlay on or off'],
  ],
  'Painting': [
    ['Space', 'paint at the crosshair'],
    ['[ ]', 'smaller, larger brush'],
    ['Ctrl + Z, Ctrl + Y', 'undo, redo (⌘ on a Mac)'],
  ],
  'Correcting in Annotate': [
    ['B, E, F', 'brush, eraser, fill; C, W or P to view only'],
    ['1 … 9', 'label to paint; 0 for the background'],
    ['Space', 'use the tool at the crosshair'],
    ['Shift + ← → ↑ ↓', 'move, and paint or erase on the way'],
    ['T', 'change only a range of intensities, or all'],
    ['U', 'mark all as not labelled, where images are labelled in part'],
    ['I', 'interpolate between the slices painted before and after this one'],
    ['Ctrl + S', 'save'],
    ['N', 'save, and open the next image'],
  ],
  'Over the image in Classify': [
    ['drag', 'classify only a region'],
    ['← → ↑ ↓', 'move the region, which begins in the middle'],
    ['Shift + ← → ↑ ↓', 'move its lower right corner'],
    ['Esc', 'the whole image'],
  ],
  'Everywhere': [['?', 'this help'], ['Esc', 'close it']],
};

/** Keys over a picture; whether it was one of them. */
export function press(scene: Scene, { key, ctrlKey, metaKey, altKey }: KeyboardEvent): boolean {
  if (ctrlKey || metaKey || altKey) return false;
  const arrow = ARROWS[key];
  const tool = TOOL_KEYS[key.toLowerCase()];
  if (arrow) scene.viewer.step(...arrow);
  else if (key === 'PageUp' || key === 'PageDown') scene.viewer.step(0, 0, key === 'PageUp' ? 1 : -1);
  else if (key === '+' || key === '=') scene.zoom(ZOOM);
  else if (key === '-') scene.zoom(1 / ZOOM);
  else if (key.toLowerCase() === 'r') scene.reset();
  else if (key.toLowerCase() === 'x') scene.setCrosshair(!scene.crosshair);
  else if (key.toLowerCase() === 'o') scene.toggleOverlay();
  else if (tool && tool in TOOLS) scene.setTool(tool);
  else return false;
  return true;
}
