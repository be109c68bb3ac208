"""Why a run ended, or what ails it: evidence -> cause, confidence, proof, remedies. Pure; imports stay light."""
