/** The page begins. */
import { mount } from 'svelte';
import App from './App.svelte';

mount(App, { target: document.body });
document.querySelector('.loading')?.remove();
