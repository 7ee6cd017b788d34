// Package manpages writes golaunch's manual pages, in a build with the tag man.
package manpages
