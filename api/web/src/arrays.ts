/** NumPy arrays: npz in, typed arrays out. */
import { unzipSync } from 'fflate';

export interface Values { shape: number[]; data: Float32Array }

/** The float32 arrays of an npz, by name. */
export function npz(bytes: Uint8Array): Record<string, Values> {
  return Object.fromEntries(Object.entries(unzipSync(bytes)).map(([name, file]) => [name.replace(/\.npy$/, ''), npy(file)]));
}

/** One float32 array in C order, as NumPy saves it. */
export function npy(bytes: Uint8Array): Values {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [length, start] = bytes[6] === 1 ? [view.getUint16(8, true), 10] : [view.getUint32(8, true), 12];
  const header = new TextDecoder('latin1').decode(bytes.subarray(start, start + length));
  if (!header.includes("'<f4'") || header.includes("'fortran_order': True")) throw new Error(`no float32 array: ${header}`);
  const shape = (/'shape': \(([^)]*)\)/.exec(header)?.[1] ?? '').split(',').filter((n) => n.trim()).map(Number);
  return { shape, data: new Float32Array(bytes.slice(start + length).buffer) };
}

/** `array[index]` along the first axis, without a copy. */
export function part(values: Values, index: number): Values {
  const shape = values.shape.slice(1);
  const size = shape.reduce((product, n) => product * n, 1);
  return { shape, data: values.data.subarray(index * size, (index + 1) * size) };
}

/** The largest magnitude. */
export const largest = (data: Float32Array): number => data.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
