// Package a2a has tests only: it runs Parley against agents that were made with
// the official SDKs of the Agent2Agent protocol.
package a2a
