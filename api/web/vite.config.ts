import { defineConfig } from 'vite';

export default defineConfig({
  base: './',
  build: { outDir: '../static', emptyOutDir: true, assetsInlineLimit: 0, modulePreload: false, target: 'es2022' },
  server: { proxy: { '/v1': 'http://127.0.0.1:8000', '/healthz': 'http://127.0.0.1:8000' } },
});
