// The key is for this origin alone, port included. A cookie would be sent to every port of the host.
const key = document.querySelector('meta[name=key]').content;
localStorage.setItem('golaunch-key', key);
location.replace('/');
