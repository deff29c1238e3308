// Package dryrun runs workflows without a server: against agents that a script
// plays, in virtual time. What decides is the same core as in a server
// (internal/workflow); around it there are only a clock that jumps to the next
// thing that is due, and the script. The same workflow, script and seed give the
// same events, byte for byte.
package dryrun
