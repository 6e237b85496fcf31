import { readFileSync } from 'node:fs';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

/** What goes into the bundle, each with its licence; NiiVue's package lacks the file. */
const LICENCES = [
  'licences/niivue.txt',
  ...['@lukeed/uuid/license', '@ungap/structured-clone/LICENSE', 'array-equal/LICENSE', 'eventsource-parser/LICENSE', 'fflate/LICENSE',
    'gl-matrix/LICENSE.md', 'svelte/LICENSE.md', 'clsx/license', 'nifti-reader-js/LICENSE', 'zarrita/LICENSE', '@zarrita/storage/LICENSE', 'numcodecs/LICENSE',
    'unzipit/LICENSE.md', 'uzip-module/LICENSE', 'reference-spec-reader/LICENSE'].map((file) => `node_modules/${file}`),
];
const notices = {
  name: 'notices',
  generateBundle() {
    const source = LICENCES.map((file) => `${file}\n\n${readFileSync(new URL(file, import.meta.url), 'utf8')}`).join('\n\n');
    this.emitFile({ type: 'asset', fileName: 'assets/NOTICE.txt', source });
  },
};

export default defineConfig({
  base: './',
  build: {
    outDir: '../static', emptyOutDir: true, assetsInlineLimit: 0, modulePreload: false, target: 'es2022',
    chunkSizeWarningLimit: 1200,
  },
  plugins: [svelte(), notices],
  server: { proxy: { '/v1': 'http://127.0.0.1:8000', '/healthz': 'http://127.0.0.1:8000' } },
});
