(* Theorem 1 of DGA, corrected: a lower bound on the probability that a row of attention is rho-sparse.

   The space is finite, its weights are in any ordered field, and the law of the logits is any joint law: nothing here
   speaks of independence. X w j is the exponential of logit j in the outcome w, so it is positive, and the attention
   weight of key j is X w j / total (X w). *)

From mathcomp Require Import all_ssreflect all_algebra.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* A law on a finite space: weights that are not negative and sum to 1. *)
Record law (R : realFieldType) (Omega : finType) := Law {
  mass : Omega -> R;
  mass_ge0 : forall w, 0 <= mass w;
  mass_total : \sum_w mass w = 1
}.

Definition probability (R : realFieldType) (Omega : finType) (P : law R Omega) (event : pred Omega) : R :=
  \sum_(w | event w) mass P w.

Definition total (R : realFieldType) (L : nat) (X : 'I_L -> R) : R := \sum_j X j.

Definition largest (R : realFieldType) (L : nat) (X : 'I_L -> R) : R := \big[Num.max/0]_j X j.

(* Some attention weight is greater than 1 / (L rho). *)
Definition rho_sparse (R : realFieldType) (L : nat) (rho : R) (X : 'I_L -> R) : bool :=
  [exists j, 1 / (L%:R * rho) < X j / total X].

Section Law.

Variables (R : realFieldType) (Omega : finType) (P : law R Omega).
Implicit Types A B C : pred Omega.

Lemma probability_all : probability P predT = 1.
Proof. exact: mass_total. Qed.

Lemma probability_ge0 A : 0 <= probability P A.
Proof. by apply: sumr_ge0 => w _; apply: mass_ge0. Qed.

(* P(A) - P(B) <= P(C), if every outcome in A and not in B is in C. *)
Lemma probability_difference A B C :
  (forall w, A w -> ~~ B w -> C w) -> probability P A - probability P B <= probability P C.
Proof.
move=> covered.
have part (D E : pred Omega) : (forall w, D w -> E w) -> probability P D <= probability P E.
  move=> inside; rewrite /probability (big_mkcond D) (big_mkcond E); apply: ler_sum => w _.
  by have := inside w; case: (D w) => [->|] //; case: (E w) => _ //; apply: mass_ge0.
rewrite ler_subl_addr {1}/probability (bigID B) /= addrC; apply: ler_add; last by apply: part => w /andP[].
by apply: part => w /andP[]; apply: covered.
Qed.

End Law.

Section Logits.

Variables (R : realFieldType) (L : nat).
Implicit Types X : 'I_L -> R.

(* `largest` is what its name says: no X j is greater, and one equals it. *)
Lemma largest_bound X j : X j <= largest X.
Proof.
rewrite /largest; elim: (index_enum _) (mem_index_enum j) => // i r IH.
by rewrite inE big_cons le_maxr => /predU1P[->|/IH ->]; rewrite ?lexx ?orbT.
Qed.

Lemma largest_attained X : (0 < L)%N -> (forall j, 0 < X j) -> exists j, largest X = X j.
Proof.
move=> some positive; have zero : largest X = 0 \/ exists j, largest X = X j.
  rewrite /largest; elim/big_ind: _ => [|x y|j _]; [by left| |by right; exists j].
  by case: (leP x y).
case: zero => // is0; have := largest_bound X (Ordinal some).
by rewrite is0 leNgt positive.
Qed.

Lemma total_gt0 X : (0 < L)%N -> (forall j, 0 < X j) -> 0 < total X.
Proof.
move=> some positive; rewrite /total (bigD1 (Ordinal some)) //=.
by rewrite ltr_paddr ?positive // sumr_ge0 // => j _; apply/ltW.
Qed.

(* Where the largest X is over x and the sum is not over L rho x, the row is rho-sparse. *)
Lemma sparse_where X (rho x : R) :
  (forall j, 0 < X j) -> 0 < L%:R * rho -> x < largest X -> total X <= L%:R * rho * x -> rho_sparse rho X.
Proof.
move=> positive bar_gt0 over within.
have some : (0 < L)%N by case: (L) bar_gt0 => //; rewrite mul0r ltxx.
have [j best] := largest_attained some positive.
apply/existsP; exists j; rewrite ltr_pdivl_mulr ?total_gt0 // mulrC mul1r ltr_pdivr_mulr // mulrC.
by apply: le_lt_trans within _; rewrite ltr_pmul2l // -best.
Qed.

End Logits.

(* P(some weight > 1 / (L rho)) >= P(max X > x) - P(S > L rho x), for every x. *)
Theorem two_term_bound (R : realFieldType) (Omega : finType) (P : law R Omega) (L : nat) (X : Omega -> 'I_L -> R)
    (rho x : R) :
  (forall w j, 0 < X w j) -> 0 < L%:R * rho ->
  probability P (fun w => x < largest (X w)) - probability P (fun w => L%:R * rho * x < total (X w))
    <= probability P (fun w => rho_sparse rho (X w)).
Proof.
move=> positive bar_gt0; apply: probability_difference => w over.
by rewrite -leNgt => within; apply: sparse_where (positive w) bar_gt0 over within.
Qed.

(* The bound is not empty: for X = (3, 1), surely, and rho = 1, its left side at x = 5/2 is 1, the most there can be. *)
Theorem two_term_bound_attained (R : realFieldType) (Omega : finType) (P : law R Omega) :
  let X (w : Omega) (j : 'I_2) : R := if j == ord0 then 3%:R else 1 in
  let x : R := 5%:R / 2%:R in
  probability P (fun w => x < largest (X w)) - probability P (fun w => 2%:R * 1 * x < total (X w)) = 1.
Proof.
move=> X x; have two_gt0 : 0 < 2%:R :> R by rewrite ltr0n.
have over w : x < largest (X w).
  by apply: lt_le_trans (largest_bound (X w) ord0); rewrite /x ltr_pdivr_mulr // -natrM ltr_nat.
have within w : (2%:R * 1 * x < total (X w)) = false.
  rewrite /total big_ord_recl big_ord1 /X /= /x mulr1 mulrCA divff ?gt_eqF // mulr1.
  by rewrite -[1]/(1%:R) -natrD ltr_nat.
rewrite -[RHS](probability_all P) /probability [X in _ - X]big_pred0 ?subr0 //.
exact: eq_bigl.
Qed.
