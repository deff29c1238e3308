// Package workflows has no code, only tests: what is written for the tools of
// other people, read by those tools.
//
//	mermaid                 reads the drawings of workflows for it
//	@hpcc-js/wasm-graphviz  Graphviz itself, lays out the drawings in DOT
//	yaml-language-server    completes, explains and checks documents by the
//	                        JSON Schema, as it does in editors
//
// The tests need Node.js 20 with npm, and once the npm registry: the packages of
// node/package-lock.json are kept in the folder that PARLEY_TEST_CACHE names, else
// in the user's cache folder.
package workflows
